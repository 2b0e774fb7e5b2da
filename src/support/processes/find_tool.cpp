#include "support/processes/find_tool.h"

#include <dlfcn.h>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

/// Returns the folders of the running program and of the file that holds this code.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path());
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&find_tool), &info) != 0 && info.dli_fname) {
    const fs::path library = fs::canonical(info.dli_fname, error).parent_path();
    if (!error && (folders.empty() || folders.back() != library)) folders.push_back(library);
  }
  return folders;
}

}  // namespace

Result<fs::path> find_tool(const fs::path& given) {
  std::vector<fs::path> places;
  if (!given.empty()) {
    places.push_back(given);
  } else {
    for (const fs::path& folder : own_folders()) {
      places.push_back(folder / "kernwright");
      places.push_back(folder.parent_path() / "bin" / "kernwright");
    }
  }
  std::string tried;
  for (const fs::path& place : places) {
    if (is_program(place)) return place;
    tried += concat(tried.empty() ? "" : ", ", place.native());
  }
  return Error{ErrorCode::unavailable,
               concat("no program ", tried, "; name the path of the program kernwright")};
}

}  // namespace kernwright
