#pragma once

#include <span>
#include <string_view>

namespace kernwright {

/// A file that the build embedded in the library. Both views live as long as the program.
struct EmbeddedFile {
  std::string_view path;     ///< relative to the embedded folder, such as "matmul/operation.json"
  std::string_view content;  ///< its bytes, unchanged
};

/// Returns templates/: operations, manifests, kernel sources and device headers, sorted by path.
std::span<const EmbeddedFile> embedded_templates();

/// Returns src/model/profiles/: the device profiles, sorted by path.
std::span<const EmbeddedFile> embedded_profiles();

}  // namespace kernwright
