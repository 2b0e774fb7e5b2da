#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright {

/// The frame of every cache file: magic, format version, kind, key, payload and a BLAKE3 digest over
/// all of it. Immutable once published.
struct EntryFile {
  std::string kind;  ///< "record" or "artifact"
  std::string key;   ///< canonical key text
  std::string payload;
};

/// Bytes of the frame. The layout is described in cache/README.md.
std::string encode_entry(const EntryFile& entry);

/// Errors: `corrupt` saying what did not fit: magic, version (both values), length, digest, kind.
Result<EntryFile> decode_entry(std::string_view bytes, std::string_view expected_kind);

}  // namespace kernwright
