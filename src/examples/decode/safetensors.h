#pragma once
// Tensors of .safetensors files: 8 bytes with the length of a JSON header, the header, the data.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "numbers.h"
#include <kernwright/result.h>

namespace decode {

namespace kw = kernwright;

/// The tensors of one or several files, by name.
class Safetensors {
 public:
  /// Opens files, and folders with files: the ones that model.safetensors.index.json names, or all
  /// *.safetensors if there is no such file. Errors: `io` for a file that cannot be read; `corrupt`
  /// for a header that does not describe its file, and for a tensor that is in two files. Each
  /// names the file.
  static kw::Result<Safetensors> open(const std::vector<std::string>& paths);

  /// Reads the tensor as bf16; F16 and F32 are rounded to the nearest. Errors: `not_found`;
  /// `invalid_argument` for another shape than `shape` or a dtype other than these three. They name
  /// the tensor and both values.
  kw::Result<Tensor> read(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  struct Entry {
    std::string file;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  ///< in the file
    std::uint64_t bytes = 0;
  };

  kw::Result<void> add_path(const std::string& path);
  kw::Result<void> add_file(const std::string& file);

  std::map<std::string, Entry> entries_;
};

}  // namespace decode
