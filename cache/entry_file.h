#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cache/miss.h"

namespace kernwright {

/// What every cache file holds: a payload under a key. Immutable once published.
struct EntryFile {
  std::string kind;  ///< "record" or "artifact"
  std::string key;   ///< canonical key text
  std::string payload;
};

/// The file's bytes: a frame of magic, format version, lengths and kind around key and payload, and
/// a BLAKE3 digest over all of it. The layout is described in cache/README.md. `entry.kind` is at
/// most 8 bytes long.
std::string encode_entry(const EntryFile& entry);

/// Undoes `encode_entry`. Reasons: `other_version` with both versions; `corrupt` saying what did
/// not fit: magic, length, digest or kind.
Lookup<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind);

/// Reads and decodes a file. Further reasons: `absent`; `unreadable` with what the file system
/// said.
Lookup<EntryFile> read_entry(const std::filesystem::path& path, std::string_view expected_kind);

/// The miss of a `Lookup` that failed, for a lookup of another type.
template <typename T, typename U>
Lookup<T> same_miss(const Lookup<U>& miss) {
  return Lookup<T>::miss(miss.reason, miss.detail);
}

}  // namespace kernwright
