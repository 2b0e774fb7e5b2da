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
  std::string place;      ///< how messages name it
  std::string_view text;  ///< lives as long as the catalog
};

namespace detail {

/// A manifest merged with what it extends.
struct MergedManifest {
  JsonNode root;                ///< whose nodes count `files`
  std::vector<JsonFile> files;  ///< the manifest, then the fragments, the nearest first
};

/// Reads `manifest` and the fragments that it extends, directly and by way of others, into one
/// value. Objects are merged member by member and launches one by one; rules come after those of
/// the fragment; anything else takes the place of what the fragment has. Members keep the
/// fragment's order, and null stands for no member: in a fragment it keeps a place in that order.
/// Errors: a file that is no JSON; a name of no fragment, or of one that extends itself, with file
/// and line.
Result<MergedManifest> read_merged(JsonFile manifest, std::span<const Fragment> fragments);

}  // namespace detail
}  // namespace kernwright
