#include "cache/entries/entry_file.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "cache/entries/checked_files.h"
#include "support/bytes.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

using std::string_view_literals::operator""sv;

// As in PNG: the first byte is not text, and a transfer in text mode would change CR LF, ^Z or LF.
constexpr std::string_view kMagic = "\x89KW\r\n\x1a\n\0"sv;
constexpr std::uint32_t kPlain = 1;     // version of a file without a body
constexpr std::uint32_t kWithBody = 2;  // version of a file with a body
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kKindBytes = 8;
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kPlainBytes = 32;  // of the frame, up to the key
constexpr std::size_t kWithBodyBytes = kPlainBytes + 8 + kDigestBytes;

// Far above the usual sizes: a winner with its evidence has some 100 KB, a cubin less than 1 MB.
constexpr FileKind kKinds[] = {
    {"record", std::uint64_t{8} << 20},     {"override", std::uint64_t{64} << 10},
    {"trials", std::uint64_t{16} << 20},    {"family", std::uint64_t{8} << 20},
    {"artifact", std::uint64_t{256} << 20},
};
// More than the front of a record has, so that one read gets it.
constexpr std::size_t kFirstRead = 4096;

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

Lookup<EntryFile> corrupt_entry(std::string detail) {
  return Lookup<EntryFile>::miss(MissReason::corrupt, std::move(detail));
}

/// The fields before the key. `error` is set if they do not fit a file of `file_bytes`.
struct Frame {
  std::size_t key_at = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::string_view kind;
  std::uint64_t body_bytes = 0;
  std::string_view body_digest;
  Lookup<EntryFile> error;

  bool ok() const { return error.detail.empty(); }
  /// Returns the length of the front, which is the file without its body.
  std::uint64_t bytes() const { return key_at + key_bytes + payload_bytes + kDigestBytes; }
};

Frame read_frame(std::string_view bytes, std::uint64_t file_bytes) {
  Frame frame;
  const auto fail = [&frame](Lookup<EntryFile> error) {
    frame.error = std::move(error);
    return frame;
  };
  if (file_bytes < kPlainBytes + kDigestBytes || bytes.size() < kPlainBytes) {
    return fail(corrupt_entry(
        concat("length ", file_bytes, " is below an empty entry's, ", kPlainBytes + kDigestBytes)));
  }
  if (!bytes.starts_with(kMagic)) {
    return fail(corrupt_entry("not a cache entry: the magic bytes are others"));
  }
  ByteReader reader(bytes.substr(kVersionAt));
  // Checked first, because another version may have other fields after it.
  const auto version = reader.integer<std::uint32_t>();
  if (version != kPlain && version != kWithBody) {
    return fail(Lookup<EntryFile>::miss(
        MissReason::other_version,
        concat("format version ", version, " is neither ", kPlain, " nor ", kWithBody)));
  }
  frame.key_at = version == kPlain ? kPlainBytes : kWithBodyBytes;
  frame.key_bytes = reader.integer<std::uint32_t>();
  frame.payload_bytes = reader.integer<std::uint64_t>();
  frame.kind = reader.take(kKindBytes);
  frame.kind = frame.kind.substr(0, frame.kind.find('\0'));
  if (version == kWithBody) {
    frame.body_bytes = reader.integer<std::uint64_t>();
    frame.body_digest = reader.take(kDigestBytes);
  }
  // Each is at most the file's length, so their sum cannot overflow.
  const bool fits = reader.ok() && frame.payload_bytes <= file_bytes &&
                    frame.body_bytes <= file_bytes &&
                    frame.bytes() + frame.body_bytes == file_bytes;
  if (!fits) {
    return fail(corrupt_entry(concat("key length ", frame.key_bytes, ", payload length ",
                                     frame.payload_bytes, " and body length ", frame.body_bytes,
                                     " do not add up to a file of ", file_bytes)));
  }
  return frame;
}

/// Decodes key and payload from the bytes of a complete front.
Lookup<EntryFile> decode_front(std::string_view bytes, const Frame& frame,
                               std::string_view expected_kind) {
  const std::string_view covered = bytes.substr(0, frame.bytes() - kDigestBytes);
  if (bytes.substr(covered.size(), kDigestBytes) != as_text(digest_of(covered))) {
    return corrupt_entry("the digest does not fit the content");
  }
  if (frame.kind != expected_kind) {
    return corrupt_entry(concat("kind \"", frame.kind, "\" is not \"", expected_kind, '"'));
  }
  return Lookup<EntryFile>::hit({std::string(frame.kind),
                                 std::string(covered.substr(frame.key_at, frame.key_bytes)),
                                 std::string(covered.substr(frame.key_at + frame.key_bytes))});
}

Lookup<EntryFile> located(Lookup<EntryFile> entry, const std::string& path) {
  if (!entry) entry.detail = concat(path, ": ", entry.detail);
  return entry;
}

/// Returns the miss for a file that cannot be read.
Lookup<EntryFile> unread(const Error& error) {
  const auto reason = [&error] {
    if (error.code == ErrorCode::not_found) return MissReason::absent;
    return error.code == ErrorCode::corrupt ? MissReason::corrupt : MissReason::unreadable;
  };
  return Lookup<EntryFile>::miss(reason(), error.message);
}

FileKind file_kind(std::string_view kind) {
  const auto* known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [kind](const FileKind& one) { return one.name == kind; });
  assert(known != std::end(kKinds));
  return *known;
}

Result<InputFile> open_entry(const fs::path& path, std::string_view kind, const fs::path& within) {
  return InputFile::open(path, file_kind(kind), within.empty() ? path.parent_path() : within);
}

}  // namespace

std::string encode_entry(const EntryFile& entry) {
  assert(entry.kind.size() <= kKindBytes);
  std::string bytes;
  bytes.reserve(kWithBodyBytes + entry.key.size() + entry.payload.size() + kDigestBytes +
                entry.body.size());
  bytes += kMagic;
  ByteWriter writer(bytes);
  writer.integer(entry.body.empty() ? kPlain : kWithBody);
  writer.integer(static_cast<std::uint32_t>(entry.key.size()));
  writer.integer(static_cast<std::uint64_t>(entry.payload.size()));
  bytes += entry.kind;
  bytes.resize(kPlainBytes, '\0');
  if (!entry.body.empty()) {
    writer.integer(static_cast<std::uint64_t>(entry.body.size()));
    bytes += as_text(digest_of(entry.body));
  }
  bytes += entry.key;
  bytes += entry.payload;
  bytes += as_text(digest_of(bytes));
  bytes += entry.body;
  return bytes;
}

Lookup<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind) {
  const Frame frame = read_frame(bytes, bytes.size());
  if (!frame.ok()) return frame.error;
  Lookup<EntryFile> entry = decode_front(bytes, frame, expected_kind);
  if (!entry || frame.body_digest.empty()) return entry;
  const std::string_view body = bytes.substr(frame.bytes());
  if (body.empty()) return corrupt_entry("a body of no bytes");
  if (frame.body_digest != as_text(digest_of(body))) {
    return corrupt_entry("the digest of the body does not fit its content");
  }
  entry.value->body = body;
  return entry;
}

Result<void> publish_entry(const fs::path& path, const EntryFile& entry, const fs::path& within) {
  const std::string bytes = encode_entry(entry);
  const FileKind kind = file_kind(entry.kind);
  if (bytes.size() > kind.most_bytes) {
    return Error{ErrorCode::invalid_argument,
                 concat("the ", kind.name, " of ", entry.key, " has ", bytes.size(),
                        " bytes, the most is ", kind.most_bytes)};
  }
  return publish_file(path, bytes, within);
}

Lookup<EntryFile> read_entry(const std::string& path, std::string_view expected_kind,
                             const fs::path& within) {
  const Result<InputFile> file = open_entry(path, expected_kind, within);
  if (!file) return unread(file.error());
  const Result<std::string> bytes = file->read(0, static_cast<std::size_t>(file->bytes()));
  if (!bytes) return unread(bytes.error());
  const std::optional<std::string> checked = checked_digest(path);
  if (checked && digest_of(*bytes).hex() != *checked) {
    return located(corrupt_entry("it was replaced after its folder was checked"), path);
  }
  return located(decode_entry(*bytes, expected_kind), path);
}

Lookup<EntryFile> read_front(const std::string& path, std::string_view expected_kind,
                             const fs::path& within) {
  if (checked_digest(path)) {  // which only the whole file shows
    Lookup<EntryFile> entry = read_entry(path, expected_kind, within);
    if (entry) entry.value->body.clear();
    return entry;
  }
  const Result<InputFile> file = open_entry(path, expected_kind, within);
  if (!file) return unread(file.error());
  Result<std::string> bytes = file->read(0, kFirstRead);
  if (!bytes) return unread(bytes.error());
  const Frame frame = read_frame(*bytes, file->bytes());
  if (!frame.ok()) return located(frame.error, path);
  if (frame.bytes() <= bytes->size()) {
    return located(decode_front(*bytes, frame, expected_kind), path);
  }
  bytes = file->read(0, static_cast<std::size_t>(frame.bytes()));
  if (!bytes) return unread(bytes.error());
  if (bytes->size() < frame.bytes())
    return located(corrupt_entry("it was cut while it was read"), path);
  return located(decode_front(*bytes, read_frame(*bytes, file->bytes()), expected_kind), path);
}

}  // namespace kernwright
