#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/files/device_header.h"
#include <kernwright/result.h>

namespace kernwright {

/// The files of one folder with the layout of `templates/`. It can be moved, and views of its texts
/// stay valid then.
class TemplateFolder {
 public:
  /// The built-in folder. Copies no text.
  static TemplateFolder embedded();
  /// Reads the files that belong to the layout, and ignores others. Errors: `not_found` where
  /// `path` is no folder; that of the first file that cannot be read; `invalid_argument` for a link
  /// to a file outside of the folder, because messages would show its text.
  static Result<TemplateFolder> read(const std::filesystem::path& path);

  /// The texts of the files by their paths, relative to the folder.
  const std::map<std::string_view, std::string_view>& files() const { return files_; }

  /// The name of one of its files in messages.
  std::string place(std::string_view path) const;

  /// The other CUDA files in the folder of the source at `path`, which it may include by their
  /// names.
  std::vector<DeviceHeader> beside(std::string_view path) const;

  /// The text of a file that the file `named_by` needs. Errors: `not_found` with both places.
  Result<std::string_view> companion(std::string_view path, std::string_view named_by) const;

 private:
  explicit TemplateFolder(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::map<std::string, std::string> read_;  ///< path and text of what the library does not hold
  std::map<std::string_view, std::string_view> files_;
};

}  // namespace kernwright
