#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compile/includes.h"
#include "support/hash.h"
#include "support/mutex.h"
#include <kernwright/result.h>

namespace kernwright {

/// The headers of a toolkit, each read once, when it is first reached. Compilers get these texts,
/// so that the digested texts are the compiled ones. A header that changes on disk takes effect in
/// a new process. Thread-safe.
class ToolkitHeaders {
 public:
  struct File {
    std::string text;
    Digest digest;
    std::vector<Include> includes;
  };
  /// Files by the names under which they are included.
  using Reached = std::map<std::string, const File*>;

  /// `folders` are searched in this order.
  explicit ToolkitHeaders(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)) {}

  /// Returns all files that `includes` may reach, also those that the preprocessor would skip.
  /// Missing files are left out; the compiler names them if it needs them. Errors: `compile` if one
  /// name means two files, because compilers look a text up by its name alone.
  Result<Reached> reached_by(const std::vector<Include>& includes);

  /// Returns the folders that are searched, for messages.
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  /// Finds the file that `include` means in a file of `folder`, which is empty for files outside of
  /// the toolkit. Returns null if there is none.
  const std::pair<const std::filesystem::path, File>* find(const Include& include,
                                                           const std::filesystem::path& folder)
      KW_REQUIRES(mutex_);
  const std::pair<const std::filesystem::path, File>* read(const std::filesystem::path& path)
      KW_REQUIRES(mutex_);

  std::vector<std::filesystem::path> folders_;
  Mutex mutex_;
  std::map<std::filesystem::path, File> files_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
