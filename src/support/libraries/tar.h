#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "support/files.h"
#include <kernwright/result.h>

namespace kernwright {

// Reading and writing tar archives compressed by zstd, by libarchive. Errors: `io`; `corrupt` with
// libarchive's message.

/// Writes an archive of regular files. The same files in the same order produce the same bytes,
/// because the archive contains no time, owner or mode of this machine.
class TarWriter {
 public:
  /// Creates an archive. It appears under `path` when it is complete, as an `OutputFile` does.
  static Result<TarWriter> create(const std::filesystem::path& path);
  TarWriter(TarWriter&&) noexcept;
  TarWriter& operator=(TarWriter&&) noexcept;
  ~TarWriter();

  Result<void> add(std::string_view name, std::string_view bytes);
  /// Completes and publishes the archive, as the last step.
  Result<void> finish();

 private:
  struct State;
  explicit TarWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The header of an archive's entry.
struct TarEntry {
  std::string name;
  bool regular = false;    ///< a file, and not a link of either kind
  std::int64_t owner = 0;  ///< user id, or the group's if that is not 0
  std::uint64_t bytes = 0;
};

class TarReader {
 public:
  static Result<TarReader> open(const std::filesystem::path& path, const FileKind& kind = {});
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;
  ~TarReader();

  /// Reads the header of the next entry. Returns nullopt at the end.
  Result<std::optional<TarEntry>> next();
  /// Reads the content of the entry that `next` returned last. Errors: `corrupt` if it has more
  /// than `most` bytes, whatever its header says.
  Result<std::string> read(std::uint64_t most);

 private:
  struct State;
  explicit TarReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kernwright
