#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cache/entries/miss.h"
#include <kernwright/result.h>

namespace kernwright {

/// What every cache file holds: a payload under a key and, behind them, a body that a lookup does
/// not read. Immutable once published.
struct EntryFile {
  std::string kind;  ///< "record", "artifact" or "override"
  std::string key;   ///< canonical key text
  std::string payload;
  std::string body = {};
};

/// The file's bytes: a frame of magic, format version, lengths and kind around key and payload, a
/// BLAKE3 digest over all of it, and the body with a digest of its own inside the frame. The layout
/// is described in cache/README.md. `entry.kind` is at most 8 bytes long.
std::string encode_entry(const EntryFile& entry);

/// Undoes `encode_entry`. Reasons: `other_version` with the versions; `corrupt` saying what did
/// not fit: magic, length, digest or kind.
Lookup<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind);

/// Publishes the file of an entry. Errors: `invalid_argument` where it would be longer than its
/// kind may be, so that nobody could read it; `io`.
Result<void> publish_entry(const std::filesystem::path& path, const EntryFile& entry,
                           const std::filesystem::path& within);

/// Reads and decodes a file. Below `within`, the root of its cache, nothing may be a link; without
/// it the file itself may be none. Further reasons: `absent`; `unreadable` with what the file
/// system said; `corrupt` where it is longer than its kind may be.
Lookup<EntryFile> read_entry(const std::string& path, std::string_view expected_kind,
                             const std::filesystem::path& within = {});

/// The same but for the body, of which only the length is checked: costs one short read.
Lookup<EntryFile> read_front(const std::string& path, std::string_view expected_kind,
                             const std::filesystem::path& within = {});

/// The miss of a `Lookup` that failed, for a lookup of another type.
template <typename T, typename U>
Lookup<T> same_miss(const Lookup<U>& miss) {
  return Lookup<T>::miss(miss.reason, miss.detail);
}

}  // namespace kernwright
