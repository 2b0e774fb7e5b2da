#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string_view>

#include "support/file_descriptor.h"
#include "support/processes/process_exit.h"

namespace kernwright {

/// The turn to make one entry, among all processes on a directory. It is a lock on a file that the
/// entry names, and it ends with its holder, whatever ends that. It saves work and is needed for
/// nothing else, so a process that cannot get it continues without it. Move-only.
class KeyLock {
 public:
  /// Waits while another process has the turn, at most for `patience`, or until `stopped` says
  /// so. It does not wait if no lock file can be made. `name` is a file name.
  static KeyLock acquire(const std::filesystem::path& root, std::string_view name,
                         std::chrono::milliseconds patience,
                         const std::function<bool()>& stopped = exiting);

  KeyLock(KeyLock&&) noexcept = default;
  KeyLock& operator=(KeyLock&&) = delete;
  ~KeyLock();

  bool held() const { return file_.valid(); }

 private:
  KeyLock(std::filesystem::path path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace kernwright
