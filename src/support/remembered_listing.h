#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/mutex.h"

namespace kernwright {

/// The names in directories. A directory is read again only if it has changed. Thread-safe; threads
/// do not wait for each other's reading.
class RememberedListings {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;

  /// Returns the names in `folder`, in no order and never null; none if it cannot be read. Nothing
  /// below `within` may be a link.
  Names names(const std::filesystem::path& folder, const std::filesystem::path& within = {});

 private:
  struct Listing {
    std::int64_t changed_ns = 0;  ///< the directory's time of modification
    Names names;
  };
  Mutex mutex_;
  std::map<std::string, Listing> listings_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
