#include "cache/entry_file.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"

namespace kernwright {
namespace {

using std::string_view_literals::operator""sv;

// As in PNG: the first byte is no text, and CR LF, ^Z, LF show what a transfer in text mode did.
constexpr std::string_view kMagic = "\x89KW\r\n\x1a\n\0"sv;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kKeyLengthAt = 12;
constexpr std::size_t kPayloadLengthAt = 16;
constexpr std::size_t kKindAt = 24;
constexpr std::size_t kKindBytes = 8;
constexpr std::size_t kHeadBytes = 32;
constexpr std::size_t kDigestBytes = 32;

// Far above any cubin: keeps a stray file from being read into memory.
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;

template <typename Integer>
void append_little_endian(std::string& bytes, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i)));
  }
}

template <typename Integer>
Integer read_little_endian(std::string_view bytes, std::size_t at) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Integer>(static_cast<std::uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

Lookup<EntryFile> corrupt(std::string detail) {
  return Lookup<EntryFile>::miss(MissReason::corrupt, std::move(detail));
}

}  // namespace

std::string encode_entry(const EntryFile& entry) {
  assert(entry.kind.size() <= kKindBytes);
  std::string bytes;
  bytes.reserve(kHeadBytes + entry.key.size() + entry.payload.size() + kDigestBytes);
  bytes += kMagic;
  append_little_endian(bytes, kVersion);
  append_little_endian(bytes, static_cast<std::uint32_t>(entry.key.size()));
  append_little_endian(bytes, static_cast<std::uint64_t>(entry.payload.size()));
  bytes += entry.kind;
  bytes.resize(kHeadBytes, '\0');
  bytes += entry.key;
  bytes += entry.payload;
  bytes += as_text(digest_of(bytes));
  return bytes;
}

Lookup<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind) {
  if (bytes.size() < kHeadBytes + kDigestBytes) {
    return corrupt(concat("length ", bytes.size(), " is below that of an empty entry, ",
                          kHeadBytes + kDigestBytes));
  }
  if (!bytes.starts_with(kMagic)) return corrupt("not a cache entry: the magic bytes are others");
  // Before all else: what follows the version is that version's own affair.
  if (const auto version = read_little_endian<std::uint32_t>(bytes, kVersionAt);
      version != kVersion) {
    return Lookup<EntryFile>::miss(MissReason::other_version,
                                   concat("format version ", version, " is not ", kVersion));
  }
  const std::uint64_t key_length = read_little_endian<std::uint32_t>(bytes, kKeyLengthAt);
  const auto payload_length = read_little_endian<std::uint64_t>(bytes, kPayloadLengthAt);
  const std::uint64_t content = bytes.size() - kHeadBytes - kDigestBytes;
  if (key_length > content || payload_length != content - key_length) {
    return corrupt(concat("key length ", key_length, " and payload length ", payload_length,
                          " do not add up to ", content));
  }
  const std::string_view covered = bytes.substr(0, bytes.size() - kDigestBytes);
  if (bytes.substr(covered.size()) != as_text(digest_of(covered))) {
    return corrupt("the digest is not that of the content");
  }
  std::string_view kind = bytes.substr(kKindAt, kKindBytes);
  kind = kind.substr(0, kind.find('\0'));
  if (kind != expected_kind)
    return corrupt(concat("kind \"", kind, "\" is not \"", expected_kind, '"'));
  return Lookup<EntryFile>::hit({std::string(kind),
                                 std::string(covered.substr(kHeadBytes, key_length)),
                                 std::string(covered.substr(kHeadBytes + key_length))});
}

Lookup<EntryFile> read_entry(const std::filesystem::path& path, std::string_view expected_kind) {
  std::error_code error;
  // Reading a FIFO or a device would block or never end.
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Lookup<EntryFile>::miss(MissReason::absent, concat("no file ", path.native()));
  }
  if (status.type() != std::filesystem::file_type::regular) {
    return Lookup<EntryFile>::miss(
        MissReason::unreadable,
        concat(path.native(), ": ", error ? error.message() : "not a regular file"));
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxFileBytes) {
    return corrupt(concat(path.native(), ": length ", size, " is above ", kMaxFileBytes));
  }
  Result<std::string> bytes = read_file(path);
  if (!bytes) {
    const bool gone = bytes.error().code == ErrorCode::not_found;
    return Lookup<EntryFile>::miss(gone ? MissReason::absent : MissReason::unreadable,
                                   bytes.error().message);
  }
  Lookup<EntryFile> entry = decode_entry(*bytes, expected_kind);
  if (!entry) entry.detail = concat(path.native(), ": ", entry.detail);
  return entry;
}

}  // namespace kernwright
