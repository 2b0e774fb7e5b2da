#include "model/template_folder.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "model/embedded_files.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {

namespace fs = std::filesystem;

namespace {

constexpr FileKind kTemplateFile{"file of a template", std::uint64_t{4} << 20};

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
  constexpr std::ptrdiff_t kDepth = 3;  // operation/template/file
  while (!pending.empty()) {
    const fs::path below = std::move(pending.back());
    pending.pop_back();
    Result<std::vector<std::string>> names = read_directory(path / below);
    if (!names) return std::move(names).error();
    std::ranges::sort(*names);
    for (const std::string& name : *names) {
      const fs::path relative = below / name;
      const std::string extension = relative.extension().native();
      if (fs::is_directory(path / relative, error)) {
        if (std::distance(relative.begin(), relative.end()) < kDepth) pending.push_back(relative);
      } else if (extension == ".json" || extension == ".cu" || extension == ".cuh") {
        Result<std::string> text = read_file(path / relative, kTemplateFile);
        if (!text) return std::move(text).error();
        folder.read_.emplace(relative.native(), *std::move(text));
      }
    }
  }
  folder.files_ = {folder.read_.begin(), folder.read_.end()};
  return folder;
}

std::string TemplateFolder::place(std::string_view path) const { return concat(name_, "/", path); }

Result<std::string_view> TemplateFolder::companion(std::string_view path,
                                                   std::string_view named_by) const {
  const auto found = files_.find(path);
  if (found != files_.end()) return found->second;
  return Error{ErrorCode::not_found,
               concat(place(named_by), ": no file ", place(path), " beside it")};
}

}  // namespace kernwright
