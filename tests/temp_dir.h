#pragma once

#include <cerrno>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <system_error>

namespace kernwright {

/// A fresh directory below the test's temporary folder, removed with all it holds when the scope
/// ends. Throws if it cannot be made: the test fails.
class ScopedTempDir {
 public:
  ScopedTempDir() {
    std::string name = ::testing::TempDir() + "/kernwright-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    path_ = name;
  }
  ~ScopedTempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScopedTempDir(const ScopedTempDir&) = delete;
  ScopedTempDir& operator=(const ScopedTempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace kernwright
