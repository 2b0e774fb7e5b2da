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
  /// Returns the built-in folder. Copies no text.
  static TemplateFolder embedded();
  /// Reads the files that belong to the layout, and ignores others. Errors: `not_found` if `path`
  /// is not a folder; the error of the first file that cannot be read; `invalid_argument` for a
  /// link to a file outside of the folder, because messages would show its text.
  static Result<TemplateFolder> read(const std::filesystem::path& path);

  /// Returns the texts of the files by their paths, relative to the folder.
  const std::map<std::string_view, std::string_view>& files() const { return files_; }

  /// Returns the name of one of its files in messages.
  std::string place(std::string_view path) const;

  /// Returns the other CUDA files in the folder of the source at `path`, which it may include by
  /// their names.
  std::vector<DeviceHeader> beside(std::string_view path) const;

  /// Returns the text of a file that the file `named_by` needs. Errors: `not_found` with both
  /// places.
  Result<std::string_view> companion(std::string_view path, std::string_view named_by) const;

 private:
  explicit TemplateFolder(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::map<std::string, std::string> read_;  ///< path and text of files outside of the library
  std::map<std::string_view, std::string_view> files_;
};

}  // namespace kernwright
