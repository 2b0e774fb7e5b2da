#include "cache/entries/checked_files.h"

#include <mutex>
#include <shared_mutex>
#include <utility>

namespace kernwright {
namespace {

struct CheckedFolders {
  std::shared_mutex mutex;
  std::map<std::string, FileDigests> folders;  ///< by path, with a slash at its end
};

CheckedFolders& checked() {
  static auto& all = *new CheckedFolders;  // threads use it while the process exits
  return all;
}

}  // namespace

void remember_checked(const std::filesystem::path& folder, FileDigests digests) {
  const std::unique_lock lock(checked().mutex);
  checked().folders[(folder / "").native()] = std::move(digests);
}

std::optional<std::string> checked_digest(std::string_view path) {
  const std::shared_lock lock(checked().mutex);
  for (const auto& [folder, digests] : checked().folders) {
    if (!path.starts_with(folder)) continue;
    const auto found = digests.find(path.substr(folder.size()));
    return found == digests.end() ? std::string() : found->second;
  }
  return std::nullopt;
}

}  // namespace kernwright
