#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright {

/// A device function for problems, which a user gives as a file: CUDA source, or LTO-IR that
/// kernels are linked with.
struct UserFunction {
  std::string name;    ///< the file's up to its first dot: what problems may call it
  std::string digest;  ///< of the bytes, in hex: what it is called in a problem's key
  std::string bytes;   ///< source without a byte order mark
  bool is_lto_ir = false;
  std::string file;  ///< for messages

  /// Reads `NAME.cu` or `NAME.ltoir`. Errors: `invalid_argument` for another ending, or a NAME that
  /// is no identifier.
  static Result<UserFunction> read(const std::filesystem::path& file);

  /// The name by which problems refer to the function in `file`.
  static std::string name_of(const std::filesystem::path& file);

  /// Whether `text` has the form of a digest.
  static bool is_digest(std::string_view text);
};

}  // namespace kernwright
