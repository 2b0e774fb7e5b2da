#include "cache/layers/bundle_manifest.h"

#include <algorithm>

#include "cache/fields/json_fields.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Json = FieldReader::Json;

constexpr std::string_view kFormat = "kernwright bundle 1";

/// Returns whether a name has only the characters of the cache's own names, and does not begin with
/// a dot.
bool is_plain_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '=' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

}  // namespace

std::string_view entry_kind(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '/');
  if (!std::all_of(parts.begin(), parts.end(), is_plain_name) || parts[0] != "v1") return {};
  const std::string_view last = parts.back();
  if (parts.size() == 7 && parts[1] == "records") {
    if (last.ends_with(".kwr")) return "record";
    if (last.ends_with(".kwo")) return "override";
    if (last.ends_with(".kwf")) return "family";
  }
  const bool artifact = parts.size() == 4 && parts[1] == "artifacts" && last.ends_with(".kwa") &&
                        is_hex_digest(last.substr(0, last.size() - 4)) &&
                        parts[2] == last.substr(0, 2);
  return artifact ? "artifact" : std::string_view();
}

std::string to_json(const BundleManifest& manifest) {
  Json files = Json::array();
  for (const BundledFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"blake3", file.digest}});
  }
  const Json json = {{"format", kFormat},           {"kernwright", manifest.kernwright},
                     {"serial", manifest.serial},   {"skus", manifest.skus},
                     {"devices", manifest.devices}, {"files", std::move(files)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Result<BundleManifest> parse_bundle_manifest(std::string_view json) {
  BundleManifest manifest;
  KW_TRY(parse_fields(json, "manifest", [&](FieldReader& fields) {
    std::string format;
    fields.field("format", format);
    if (format != kFormat) fields.fail("format", concat('"', format, "\" is not \"", kFormat, '"'));
    fields.field("kernwright", manifest.kernwright);
    fields.newer("serial", manifest.serial);
    fields.field("skus", manifest.skus);
    fields.field("devices", manifest.devices);
    std::uint64_t total = 0;
    fields.each_object("files", [&](FieldReader& nested) {
      BundledFile file;
      nested.field("name", file.name);
      nested.field("bytes", file.bytes);
      nested.field("blake3", file.digest);
      if (entry_kind(file.name).empty()) {
        nested.fail("name", concat('"', file.name, "\" is no place of a cache's file"));
      } else if (!manifest.files.empty() && manifest.files.back().name >= file.name) {
        nested.fail("name", concat('"', file.name, "\" does not come after the one before it"));
      }
      if (!is_hex_digest(file.digest)) nested.fail("blake3", "is no digest");
      if (file.bytes > kMostFileBytes) {
        nested.fail("bytes", concat(file.bytes, " is above ", kMostFileBytes));
      }
      total += std::min(file.bytes, kMostFileBytes);
      manifest.files.push_back(std::move(file));
    });
    if (total > kMostBundleBytes) {
      fields.fail("files", concat(total, " bytes are above ", kMostBundleBytes));
    }
    if (manifest.files.size() > kMostFiles) {
      fields.fail("files", concat(manifest.files.size(), " files are more than ", kMostFiles));
    }
  }));
  return manifest;
}

std::string signed_text(std::string_view manifest) {
  // With the prefix a signature cannot be valid for anything else.
  return concat("kernwright bundle manifest\n", manifest);
}

}  // namespace kernwright
