#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright {

/// A device function for problems, which a user passes as a file: CUDA source, or LTO-IR that
/// kernels are linked with.
struct UserFunction {
  std::string name;    ///< of the file, up to its first dot; problems call it so
  std::string digest;  ///< of the bytes, in hex: its name in a problem's key
  std::string bytes;   ///< source without a byte order mark
  bool is_lto_ir = false;
  std::string file;  ///< for messages

  /// Reads `NAME.cu` or `NAME.ltoir`. Errors: `invalid_argument` for another ending, or a NAME that
  /// is not an identifier.
  static Result<UserFunction> read(const std::filesystem::path& file);

  /// Returns the name by which problems refer to the function in `file`.
  static std::string name_of(const std::filesystem::path& file);

  /// Returns whether `text` has the form of a digest.
  static bool is_digest(std::string_view text);
};

}  // namespace kernwright
