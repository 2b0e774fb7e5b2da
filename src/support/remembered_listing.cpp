#include "support/remembered_listing.h"

#include <chrono>
#include <optional>
#include <utility>

#include "support/file_calls.h"
#include "support/files.h"

namespace kernwright {
namespace {

// If a directory changes twice within one tick of its file system's clock, both states have the
// same time. The longest tick is FAT's.
constexpr std::chrono::nanoseconds kLongestTick = std::chrono::seconds(2);

std::optional<std::int64_t> time_of_change(const std::filesystem::path& folder,
                                           const std::filesystem::path& within) {
  DIR* directory = file_calls().opendir(folder.c_str(), within.native().size());
  if (directory == nullptr) return std::nullopt;
  struct stat status{};
  const bool known = file_calls().fstat(::dirfd(directory), &status) == 0;
  ::closedir(directory);
  if (!known) return std::nullopt;
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

/// Returns whether any later change would have another time than `changed_ns`.
bool is_settled(std::int64_t changed_ns) {
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::nanoseconds(changed_ns) > kLongestTick;
}

}  // namespace

RememberedListings::Names RememberedListings::names(const std::filesystem::path& folder,
                                                    const std::filesystem::path& within) {
  // Taken before the reading, so that a change during it has another time.
  const std::optional<std::int64_t> changed = time_of_change(folder, within);
  if (!changed) return std::make_shared<const std::vector<std::string>>();
  {
    const MutexLock lock(mutex_);
    const auto known = listings_.find(folder.native());
    if (known != listings_.end() && known->second.changed_ns == *changed) {
      return known->second.names;
    }
  }
  const bool settled = is_settled(*changed);
  Result<std::vector<std::string>> read = read_directory(folder, within);
  if (!read) return std::make_shared<const std::vector<std::string>>();
  auto names = std::make_shared<const std::vector<std::string>>(*std::move(read));
  if (settled) {
    const MutexLock lock(mutex_);
    listings_[folder.native()] = {*changed, names};
  }
  return names;
}

}  // namespace kernwright
