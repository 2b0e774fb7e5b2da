#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/files/device_header.h"
#include <kernwright/result.h>

namespace kernwright {

/// The files of one folder of templates, with the layout of `templates/`. Movable; views of its
/// texts stay valid.
class TemplateFolder {
 public:
  /// The built-in one. Copies no text.
  static TemplateFolder embedded();
  /// Reads what the layout has a place for; other files are nobody's. Errors: `not_found` where
  /// `path` is no folder; the first file that cannot be read; `invalid_argument` for a link to a
  /// file outside of the folder, whose text messages would show.
  static Result<TemplateFolder> read(const std::filesystem::path& path);

  /// Text by path relative to the folder.
  const std::map<std::string_view, std::string_view>& files() const { return files_; }

  /// How messages name a file of it.
  std::string place(std::string_view path) const;

  /// The CUDA files in the same folder as the source at `path`, which it may include by their
  /// names.
  std::vector<DeviceHeader> beside(std::string_view path) const;

  /// The text of a file that file `named_by` needs. Errors: `not_found` with both places.
  Result<std::string_view> companion(std::string_view path, std::string_view named_by) const;

 private:
  explicit TemplateFolder(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::map<std::string, std::string> read_;  ///< path and text of what the library does not hold
  std::map<std::string_view, std::string_view> files_;
};

}  // namespace kernwright
