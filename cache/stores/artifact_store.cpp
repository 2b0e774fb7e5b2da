#include "cache/stores/artifact_store.h"

#include <utility>

#include "cache/entries/entry_file.h"
#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::string_view kKind = "artifact";
constexpr std::string_view kSuffix = ".kwa";

/// Describes the metadata that stands before the bits.
void describe_metadata(auto& visitor, MaybeConst<CompiledKernel> auto& kernel) {
  visitor.field("output", kernel.output);
  visitor.field("target", kernel.target);
  visitor.field("entries", kernel.entries);
  visitor.field("warnings", kernel.warnings);
  visitor.field("log", kernel.log);
  visitor.field("seconds", kernel.seconds);
}

}  // namespace

std::string encode_artifact(const CompiledKernel& kernel) {
  FieldWriter metadata;
  describe_metadata(metadata, kernel);
  return concat(metadata.text(), '\n', kernel.bits);
}

Result<CompiledKernel> decode_artifact(std::string_view payload) {
  const std::size_t end = payload.find('\n');
  if (end == std::string_view::npos) {
    return Error{ErrorCode::corrupt, "artifact: no newline ends the metadata"};
  }
  CompiledKernel kernel;
  KW_TRY(parse_fields(payload.substr(0, end), "artifact",
                      [&](FieldReader& fields) { describe_metadata(fields, kernel); }));
  kernel.bits = payload.substr(end + 1);
  return kernel;
}

ArtifactStore::ArtifactStore(std::filesystem::path root) : root_(std::move(root)) {}

Lookup<CompiledKernel> ArtifactStore::get(std::string_view digest_hex) const {
  using Found = Lookup<CompiledKernel>;
  // Digests come from records, which may come from other machines, and no text other than a digest
  // may become part of a path.
  if (!is_hex_digest(digest_hex)) {
    return Found::miss(MissReason::absent, concat('"', digest_hex, "\" is no digest"));
  }
  const std::filesystem::path file = path(digest_hex);
  const Lookup<EntryFile> entry = read_entry(file.native(), kKind, root_);
  if (!entry) return same_miss<CompiledKernel>(entry);
  if (entry.value->key != digest_hex) {
    return Found::miss(MissReason::key_mismatch,
                       concat(file.native(), ": holds the artifact ", entry.value->key));
  }
  Result<CompiledKernel> kernel = decode_artifact(entry.value->payload);
  if (!kernel) {
    return Found::miss(MissReason::corrupt, concat(file.native(), ": ", kernel.error().message));
  }
  return Found::hit(*std::move(kernel));
}

Result<void> ArtifactStore::put(std::string_view digest_hex, const CompiledKernel& kernel) const {
  if (!is_hex_digest(digest_hex)) {
    return Error{ErrorCode::invalid_argument, concat('"', digest_hex, "\" is no digest")};
  }
  if (get(digest_hex)) return {};
  return publish_entry(path(digest_hex),
                       {std::string(kKind), std::string(digest_hex), encode_artifact(kernel)},
                       root_);
}

std::vector<std::string> ArtifactStore::list() const {
  std::vector<std::string> digests;
  for (const std::filesystem::path& file : files_below(root_ / "v1" / "artifacts", root_).files) {
    const std::string digest = file.stem().native();
    if (is_hex_digest(digest) && file == path(digest)) digests.push_back(digest);
  }
  return digests;
}

std::filesystem::path ArtifactStore::path(std::string_view digest_hex) const {
  return root_ / "v1" / "artifacts" / digest_hex.substr(0, 2) / concat(digest_hex, kSuffix);
}

}  // namespace kernwright
