#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cache/entries/miss.h"
#include <kernwright/result.h>

namespace kernwright {

/// The contents of every cache file: a payload under a key, and after them a body that a lookup
/// does not read. A file is immutable once it is published.
struct EntryFile {
  std::string kind;  ///< "record", "trials", "family", "override" or "artifact"
  std::string key;   ///< canonical key text
  std::string payload;
  std::string body = {};
};

/// Returns the file's bytes. A frame of magic, format version, lengths and kind surrounds key and
/// payload. A BLAKE3 digest covers all of that. The body follows; its own digest is inside the
/// frame. cache/README.md describes the layout. `entry.kind` is at most 8 bytes long.
std::string encode_entry(const EntryFile& entry);

/// Undoes `encode_entry`. Reasons: `other_version`, with the versions; `corrupt`, which says what
/// did not fit: magic, length, digest or kind.
Lookup<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind);

/// Publishes the file of an entry. Errors: `invalid_argument` if it would be longer than its kind
/// may be, since nobody could read it then; `io`.
Result<void> publish_entry(const std::filesystem::path& path, const EntryFile& entry,
                           const std::filesystem::path& within);

/// Reads and decodes a file. Nothing below `within`, the root of its cache, may be a link. If
/// `within` is empty, the file itself may not be a link. Further reasons: `absent`; `unreadable`,
/// with the message of the file system; `corrupt` if the file is longer than its kind may be, or is
/// not the one that was checked (checked_files.h).
Lookup<EntryFile> read_entry(const std::string& path, std::string_view expected_kind,
                             const std::filesystem::path& within = {});

/// Reads everything but the body, of which only the length is checked. This costs one short read,
/// except for files whose folder was checked, which are read whole.
Lookup<EntryFile> read_front(const std::string& path, std::string_view expected_kind,
                             const std::filesystem::path& within = {});

/// Returns the miss of a `Lookup` that failed, for a lookup of another type.
template <typename T, typename U>
Lookup<T> same_miss(const Lookup<U>& miss) {
  return Lookup<T>::miss(miss.reason, miss.detail);
}

}  // namespace kernwright
