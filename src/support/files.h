#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "support/file_descriptor.h"
#include <kernwright/result.h>

namespace kernwright {

// All files are opened here. Only regular files are read, appended to or replaced, because a pipe
// would block for ever and a device would never end. If a function takes `within`, a folder above
// the path, nothing below that folder may be a link, so no file of a cache can lead out of it.
// Without `within` links are followed, because a user's own arguments may be links.

/// A kind of file: its name in messages, and the largest length of such a file.
struct FileKind {
  std::string_view name = "file";
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
};

/// A regular file of known length, opened for reading. Move-only.
class InputFile {
 public:
  /// Opens a file. Errors: `not_found`; `corrupt` with both lengths if the file is longer than its
  /// kind may be; `io` with path and reason, also if it is not a regular file.
  static Result<InputFile> open(const std::filesystem::path& path, const FileKind& kind = {},
                                const std::filesystem::path& within = {});

  std::uint64_t bytes() const { return bytes_; }
  int descriptor() const { return file_.get(); }

  /// Reads up to `count` bytes from `offset` on, fewer only at the end of the file. Errors: `io`,
  /// also if there is not enough memory.
  Result<std::string> read(std::uint64_t offset, std::size_t count) const;

 private:
  InputFile(std::filesystem::path path, FileDescriptor file, std::uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t bytes_;
};

/// Reads the bytes of a whole file. Errors: see `InputFile`.
Result<std::string> read_file(const std::filesystem::path& path, const FileKind& kind = {},
                              const std::filesystem::path& within = {});

/// A file that is written under a temporary name and then renamed, so that readers see the old file
/// or the whole new one. Only a regular file is replaced. The file is not fsynced; after a power
/// loss the reader's checksum finds a torn file. Move-only.
class OutputFile {
 public:
  /// Makes missing folders. Errors: `io` with path and reason.
  static Result<OutputFile> create(const std::filesystem::path& path,
                                   const std::filesystem::path& within = {});
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes the temporary file unless it was published.
  ~OutputFile();

  int descriptor() const { return file_.get(); }
  Result<void> write(std::string_view bytes);
  /// Gives the file its name, as the last step. Errors: `io`.
  Result<void> publish();

 private:
  OutputFile(std::filesystem::path path, std::filesystem::path temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< empty once it has its name
  FileDescriptor file_;
};

/// Publishes `bytes` under `path` as an `OutputFile`. Errors: `io`.
Result<void> publish_file(const std::filesystem::path& path, std::string_view bytes,
                          const std::filesystem::path& within = {});

/// Creates a file with `bytes` in an existing folder. Errors: `io`, also if the name is taken.
Result<void> create_file(const std::filesystem::path& path, std::string_view bytes, mode_t mode);

/// Appends one line (a newline is added) by a single O_APPEND write, so that concurrent writers
/// never interleave within a line. Makes missing folders. `path` itself may not be a link. Errors:
/// `io`, also if the file would become longer than its kind may be.
Result<void> append_line(const std::filesystem::path& path, std::string_view line,
                         const FileKind& kind = {}, const std::filesystem::path& within = {});

/// Returns the names in a directory, in no order. Errors: `not_found`; `io` with path and reason.
Result<std::vector<std::string>> read_directory(const std::filesystem::path& path,
                                                const std::filesystem::path& within = {});

/// Returns the same names, sorted; empty if the directory cannot be read.
std::vector<std::string> list_directory(const std::filesystem::path& path);

/// All entries below a folder, at any depth, that are not folders themselves.
struct FilesBelow {
  std::vector<std::filesystem::path> files;  ///< sorted; links and devices are among them

  /// A folder that could not be read, with the reason.
  struct Unread {
    std::filesystem::path folder;
    Error error;
  };
  std::vector<Unread> unread;
};
/// Lists them without following links below `within`. A missing folder holds nothing.
FilesBelow files_below(const std::filesystem::path& folder, const std::filesystem::path& within);

}  // namespace kernwright
