#include "cache/entries/default_root.h"

#include <array>
#include <cstdlib>
#include <pwd.h>
#include <string_view>
#include <unistd.h>

#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// Returns the value of an environment variable as a path; empty if it is not set.
fs::path path_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

fs::path home() {
  if (fs::path path = path_in("HOME"); path.is_absolute()) return path;
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? fs::path() : fs::path(found->pw_dir);
}

}  // namespace

fs::path default_cache_root() {
  if (fs::path path = path_in("KERNWRIGHT_CACHE"); !path.empty()) return path;
  // By the XDG specification a path that is not absolute must be ignored.
  if (fs::path path = path_in("XDG_CACHE_HOME"); path.is_absolute()) return path / "kernwright";
  if (fs::path path = home(); !path.empty()) return path / ".cache" / "kernwright";
  return "/dev/null/kernwright";
}

std::vector<std::string> signed_cache_roots() {
  std::vector<std::string> roots;
  const fs::path named = path_in("KERNWRIGHT_SIGNED_CACHES");
  for (const std::string_view root : split(named.native(), ':')) {
    if (!root.empty()) roots.emplace_back(root);
  }
  return roots;
}

}  // namespace kernwright
