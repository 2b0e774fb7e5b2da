#pragma once
// Files that the decoder reads, which may be anybody's.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <kernwright/result.h>

namespace decode {

namespace kw = kernwright;

/// A regular file of known length, opened for reading. Nothing else is opened: a pipe would wait
/// for a writer, and a device would never end.
class InputFile {
 public:
  /// Opens a file. Errors: `io`, which names the file.
  static kw::Result<InputFile> open(const std::string& path);

  std::uint64_t bytes() const { return bytes_; }
  /// Reads `count` bytes from `offset` on, which the file has. Errors: `io`, also if it ends
  /// before.
  kw::Result<std::string> read(std::uint64_t offset, std::uint64_t count) const;

 private:
  InputFile(std::string path, std::shared_ptr<const int> file, std::uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  std::string path_;
  std::shared_ptr<const int> file_;  ///< closed by the last owner
  std::uint64_t bytes_;
};

/// Reads the text of a whole file. Errors: `io`; `corrupt` if it has more than `most` bytes.
kw::Result<std::string> read_text(const std::string& path, std::uint64_t most);

/// Returns the value of a JSON text; `is_discarded` if the text is not JSON, or is nested deeper
/// than 64: values are copied and written by recursion.
nlohmann::json parse_json(std::string_view text);
inline constexpr const char* kNoObject = "is not a JSON object that is nested up to 64 deep";

/// Returns the value for messages; a long one is cut.
std::string shown(const nlohmann::json& value);

}  // namespace decode
