#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// A part of a manifest that several templates share: a JSON file of a folder's `include/`, which
/// manifests and other fragments name in `extends`.
struct Fragment {
  std::string name;       ///< "kernwright/rows/row.json"
  std::string place;      ///< its name in messages
  std::string_view text;  ///< lives as long as the catalog
};

namespace detail {

/// A manifest merged with the fragments that it extends.
struct MergedManifest {
  JsonNode root;                ///< whose nodes count `files`
  std::vector<JsonFile> files;  ///< the manifest, then the fragments, the nearest first
};

/// Reads `manifest` and the fragments that it extends, directly or through other fragments, into
/// one value. Objects are merged member by member, and launches one by one. Rules are added after
/// the fragment's rules. Any other value replaces the fragment's value. Members keep the fragment's
/// order. A null means a missing member; in a fragment it reserves a place in that order. Errors,
/// with file and line: a file that is not JSON; a name that is not a fragment, or a fragment that
/// extends itself.
Result<MergedManifest> read_merged(JsonFile manifest, std::span<const Fragment> fragments);

}  // namespace detail
}  // namespace kernwright
