#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kernwright::cli {

/// The folders that $KERNWRIGHT_SIGNED_CACHES names, with colons between them: bundles that
/// packages bring. The tool of the Python package sets it to those that are installed.
std::vector<std::string> signed_caches();

/// One of them, as a service takes it or passes over it.
struct SignedCache {
  std::string folder;
  std::size_t records = 0;
  std::string defect;  ///< why it is passed over; empty: it is whole, and the project signed it
};

/// Reads all of them.
std::vector<SignedCache> examine_signed_caches();

}  // namespace kernwright::cli
