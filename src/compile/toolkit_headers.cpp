#include "compile/toolkit_headers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "support/files.h"
#include "support/text.h"

namespace kernwright {

namespace fs = std::filesystem;

Result<ToolkitHeaders::Reached> ToolkitHeaders::reached_by(const std::vector<Include>& includes) {
  struct Pending {
    const Include* include;
    fs::path folder;
  };
  std::vector<Pending> pending;
  for (const Include& include : includes) pending.push_back({&include, {}});
  Reached reached;
  const MutexLock lock(mutex_);
  while (!pending.empty()) {
    const Pending next = std::move(pending.back());
    pending.pop_back();
    const auto* found = find(*next.include, next.folder);
    if (found == nullptr) continue;
    const auto [known, is_new] = reached.emplace(next.include->name, &found->second);
    if (!is_new && known->second != &found->second) {
      return Error{ErrorCode::compile,
                   concat("the toolkit's header ", next.include->name,
                          " means two files, one of them ", found->first.native())};
    }
    if (!is_new) continue;
    for (const Include& include : found->second.includes) {
      pending.push_back({&include, found->first.parent_path()});
    }
  }
  return reached;
}

const std::pair<const fs::path, ToolkitHeaders::File>* ToolkitHeaders::find(
    const Include& include, const fs::path& folder) {
  if (include.is_quoted && !folder.empty()) {
    if (const auto* beside = read(folder / include.name)) return beside;
  }
  for (const fs::path& root : folders_) {
    if (const auto* found = read(root / include.name)) return found;
  }
  return nullptr;
}

const std::pair<const fs::path, ToolkitHeaders::File>* ToolkitHeaders::read(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  const bool is_within = std::ranges::any_of(folders_, [&](const fs::path& root) {
    const fs::path below = normal.lexically_relative(root.lexically_normal());
    return !below.empty() && *below.begin() != "..";
  });
  if (!is_within) return nullptr;
  if (const auto known = files_.find(normal); known != files_.end()) return &*known;
  std::error_code error;
  if (!fs::is_regular_file(normal, error)) return nullptr;
  Result<std::string> text = read_file(normal);
  if (!text) return nullptr;
  File file{.text = *text, .digest = digest_of(*text), .includes = scan_includes(*text).includes};
  // A macro could let the source choose the file. Only headers of Thrust have such includes, and
  // Thrust is not for kernels that NVRTC compiles.
  const auto is_made_by_macro = [](const Include& include) {
    return include.kind == Include::Kind::include && include.name.empty();
  };
  if (std::ranges::any_of(file.includes, is_made_by_macro)) return nullptr;
  return &*files_.emplace(normal, std::move(file)).first;
}

}  // namespace kernwright
