#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/file_descriptor.h"
#include <kernwright/result.h>

namespace kernwright {

/// A regular file opened for reading, whose length is known. Move-only.
class InputFile {
 public:
  /// Errors: `not_found`; `io` naming the path and the reason, which may be that it is no regular
  /// file: reading a pipe or a device would block or never end.
  static Result<InputFile> open(const std::filesystem::path& path);

  std::uint64_t bytes() const { return bytes_; }

  /// Up to `count` bytes from `offset` on; fewer only where the file ends. Errors: `io`.
  Result<std::string> read(std::uint64_t offset, std::size_t count) const;

 private:
  InputFile(std::filesystem::path path, FileDescriptor file, std::uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t bytes_;
};

/// The whole file as bytes. Errors: `not_found`, or `io` naming the path and the reason.
Result<std::string> read_file(const std::filesystem::path& path);

/// Publishes `bytes` under `path`: written to a temporary file in the same directory (created if
/// missing), every write checked, then renamed. Readers see the old file or the whole new one. Not
/// fsynced: a torn file after power loss is for the reader's checksum to find.
Result<void> publish_file(const std::filesystem::path& path, std::string_view bytes);

/// Appends one line (a newline is added) with a single O_APPEND write, so that concurrent writers
/// never interleave within a line.
Result<void> append_line(const std::filesystem::path& path, std::string_view line);

/// The names in a directory in no order. Errors: `not_found`; `io` naming the path and the reason.
Result<std::vector<std::string>> read_directory(const std::filesystem::path& path);

/// The same sorted; empty where it cannot be read.
std::vector<std::string> list_directory(const std::filesystem::path& path);

}  // namespace kernwright
