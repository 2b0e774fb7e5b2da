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

// Files are opened in one way, here. Only a regular file is read, appended to or replaced: a pipe
// would block for ever, and a device never end. Where a function takes `within`, a folder above the
// path, nothing below that folder may be a link: so what a cache holds cannot lead out of it.
// Without it links are followed, as a user's own arguments may be some.

/// A kind of file: what messages call it, and how long one may be.
struct FileKind {
  std::string_view name = "file";
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
};

/// A regular file opened for reading, whose length is known. Move-only.
class InputFile {
 public:
  /// Errors: `not_found`; `corrupt` where it is longer than its kind may be, with both lengths;
  /// `io` naming the path and the reason, which may be that it is no regular file.
  static Result<InputFile> open(const std::filesystem::path& path, const FileKind& kind = {},
                                const std::filesystem::path& within = {});

  std::uint64_t bytes() const { return bytes_; }
  int descriptor() const { return file_.get(); }

  /// Up to `count` bytes from `offset` on; fewer only where the file ends. Errors: `io`, also where
  /// there is no memory for as many.
  Result<std::string> read(std::uint64_t offset, std::size_t count) const;

 private:
  InputFile(std::filesystem::path path, FileDescriptor file, std::uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t bytes_;
};

/// The whole file as bytes. Errors: as `InputFile`.
Result<std::string> read_file(const std::filesystem::path& path, const FileKind& kind = {},
                              const std::filesystem::path& within = {});

/// A file that is written beside its place and appears there whole, or not at all: readers see the
/// old file or the new one. What lies in its place must be a regular file, if anything is. Not
/// fsynced: a torn file after power loss is for the reader's checksum to find. Move-only.
class OutputFile {
 public:
  /// Makes missing folders. Errors: `io` naming the path and the reason.
  static Result<OutputFile> create(const std::filesystem::path& path,
                                   const std::filesystem::path& within = {});
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Leaves nothing behind unless it was published.
  ~OutputFile();

  int descriptor() const { return file_.get(); }
  Result<void> write(std::string_view bytes);
  /// The last step. Errors: `io`.
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

/// Makes a new file of `bytes` in a folder that is there. Errors: `io`, also where anything has the
/// name already.
Result<void> create_file(const std::filesystem::path& path, std::string_view bytes, mode_t mode);

/// Appends one line (a newline is added) with a single O_APPEND write, so that concurrent writers
/// never interleave within a line. Makes missing folders; follows no link from `path` to another
/// file. Errors: `io`, also where the file would become longer than its kind may be.
Result<void> append_line(const std::filesystem::path& path, std::string_view line,
                         const FileKind& kind = {}, const std::filesystem::path& within = {});

/// The names in a directory in no order. Errors: `not_found`; `io` naming the path and the reason.
Result<std::vector<std::string>> read_directory(const std::filesystem::path& path,
                                                const std::filesystem::path& within = {});

/// The same sorted; empty where it cannot be read.
std::vector<std::string> list_directory(const std::filesystem::path& path);

/// Whatever lies below a folder and is none itself, at any depth.
struct FilesBelow {
  std::vector<std::filesystem::path> files;  ///< sorted; links and devices are among them

  /// A folder that could not be read: what it holds is not known.
  struct Unread {
    std::filesystem::path folder;
    Error error;
  };
  std::vector<Unread> unread;
};
/// Follows no links below `within`; a folder that is not there holds nothing.
FilesBelow files_below(const std::filesystem::path& folder, const std::filesystem::path& within);

}  // namespace kernwright
