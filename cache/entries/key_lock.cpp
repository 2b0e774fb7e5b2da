#include "cache/entries/key_lock.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/file_calls.h"
#include "support/processes/file_lock.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

FileDescriptor open_lock(const std::filesystem::path& path, const std::filesystem::path& root) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  return FileDescriptor(file_calls().open(path.c_str(), root.native().size(), kFlags, 0666));
}

/// Returns whether `path` is still a name of the file. (The last holder removes it.)
bool is_named(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat named{};
  struct stat opened{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

}  // namespace

KeyLock KeyLock::acquire(const std::filesystem::path& root, std::string_view name,
                         std::chrono::milliseconds patience, const std::function<bool()>& stopped) {
  const std::filesystem::path path = root / "v1" / "locks" / name;
  const Clock::time_point end = Clock::now() + patience;
  // flock has no timeout, so it is tried again and again, with growing pauses.
  std::chrono::milliseconds pause{1};
  for (;;) {
    FileDescriptor file = open_lock(path, root);
    if (!file.valid() && errno == ENOENT) {
      std::error_code ignored;
      std::filesystem::create_directories(path.parent_path(), ignored);
      file = open_lock(path, root);
    }
    if (!file.valid()) return {path, FileDescriptor()};
    LockAttempt attempt = try_lock(file.get());
    for (; attempt == LockAttempt::busy; attempt = try_lock(file.get())) {
      if (stopped() || Clock::now() >= end) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
    if (attempt != LockAttempt::taken) return {path, FileDescriptor()};
    if (is_named(file, path)) return {path, std::move(file)};
  }
}

KeyLock::~KeyLock() {
  // Removed while it is locked, so that waiters for this file find that it no longer has a name.
  if (file_.valid()) ::unlink(path_.c_str());
}

}  // namespace kernwright
