#include "model/files/template_folder.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "model/files/embedded_files.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

namespace fs = std::filesystem;

namespace {

constexpr FileKind kTemplateFile{"file of a template", std::uint64_t{4} << 20};
constexpr std::string_view kExtensions[] = {".json", ".cu", ".cuh", ".h", ".hpp"};

/// Reads the file at `relative` below `folder`. A folder of templates may come from anywhere, and
/// compilers show lines that they do not understand. So a link to a file outside is refused.
Result<std::string> read_within(const fs::path& folder, const fs::path& relative) {
  std::error_code error;
  const fs::path place = fs::canonical(folder / relative, error);
  const fs::path root = error ? fs::path() : fs::canonical(folder, error);
  if (!error && *place.lexically_relative(root).begin() == "..") {
    return Error{ErrorCode::invalid_argument,
                 concat((folder / relative).native(), " is a link to ", place.native(),
                        ", outside of ", root.native())};
  }
  return read_file(folder / relative, kTemplateFile);
}

}  // namespace

TemplateFolder TemplateFolder::embedded() {
  TemplateFolder folder("templates");
  for (const EmbeddedFile& file : embedded_templates()) {
    folder.files_.emplace(file.path, file.content);
  }
  return folder;
}

Result<TemplateFolder> TemplateFolder::read(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return Error{ErrorCode::not_found, concat("no folder of templates ", path.native())};
  }
  TemplateFolder folder(path.native());
  std::vector<fs::path> pending{fs::path()};
  constexpr std::ptrdiff_t kDepth = 4;  // include/kernwright/tile/file
  while (!pending.empty()) {
    const fs::path below = std::move(pending.back());
    pending.pop_back();
    KW_ASSIGN(std::vector<std::string> names, read_directory(path / below));
    std::ranges::sort(names);
    for (const std::string& name : names) {
      const fs::path relative = below / name;
      if (fs::is_directory(path / relative, error)) {
        if (std::distance(relative.begin(), relative.end()) < kDepth) pending.push_back(relative);
      } else if (std::ranges::find(kExtensions, relative.extension()) != std::end(kExtensions)) {
        KW_ASSIGN(std::string text, read_within(path, relative));
        folder.read_.emplace(relative.native(), without_byte_order_mark(text));
      }
    }
  }
  folder.files_ = {folder.read_.begin(), folder.read_.end()};
  return folder;
}

std::string TemplateFolder::place(std::string_view path) const { return concat(name_, "/", path); }

std::vector<DeviceHeader> TemplateFolder::beside(std::string_view path) const {
  const std::string_view folder = path.substr(0, path.rfind('/') + 1);
  std::vector<DeviceHeader> headers;
  for (const auto& [other, text] : files_) {
    if (!other.starts_with(folder) || other == path || other.ends_with(".json")) continue;
    const std::string_view name = other.substr(folder.size());
    if (name.find('/') == std::string_view::npos) headers.push_back({std::string(name), text});
  }
  return headers;
}

Result<std::string_view> TemplateFolder::companion(std::string_view path,
                                                   std::string_view named_by) const {
  const auto found = files_.find(path);
  if (found != files_.end()) return found->second;
  return Error{ErrorCode::not_found,
               concat(place(named_by), ": no file ", place(path), " beside it")};
}

}  // namespace kernwright
