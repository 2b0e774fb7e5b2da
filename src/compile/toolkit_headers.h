#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "compile/includes.h"
#include "support/hash.h"
#include <kernwright/result.h>

namespace kernwright {

/// The headers of a toolkit, read when they are first reached: compilers get their texts, so that
/// what is digested is what is compiled. Each is read once: who changes one sees it in a new
/// process. Thread-safe.
class ToolkitHeaders {
 public:
  struct File {
    std::string text;
    Digest digest;
    std::vector<Include> includes;
  };
  /// Files by the names that they are included by.
  using Reached = std::map<std::string, const File*>;

  /// `folders` in the order in which a name is looked for.
  explicit ToolkitHeaders(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)) {}

  /// All files that `includes` may reach, whatever the preprocessor would skip; what is not there
  /// is left out, for the compiler to name if it comes to it. Errors: `compile` where one name
  /// means two files, since compilers look a text up by its name alone.
  Result<Reached> reached_by(const std::vector<Include>& includes);

  /// Where headers are looked for, for messages.
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  /// The file that `include` in a file of `folder` (empty: in none of the toolkit's) means; null
  /// where there is none. Under the mutex.
  const std::pair<const std::filesystem::path, File>* find(const Include& include,
                                                           const std::filesystem::path& folder);
  const std::pair<const std::filesystem::path, File>* read(const std::filesystem::path& path);

  std::vector<std::filesystem::path> folders_;
  std::mutex mutex_;
  std::map<std::filesystem::path, File> files_;
};

}  // namespace kernwright
