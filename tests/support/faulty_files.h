#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "support/file_calls.h"

namespace kernwright {

/// While the object lives, calls on paths below `folder`, and on files opened there, fail or are
/// slow.
class FaultyFiles {
 public:
  /// Which call fails with which error; an error of 0 only slows it down.
  enum class Call { open_to_read, open_to_write, fstat, pread, write, rename, opendir, all };

  FaultyFiles(std::string folder, Call call, int error, std::chrono::milliseconds delay = {}) {
    state().folder = std::move(folder);
    state().call = call;
    state().error = error;
    state().delay = delay;
    state().failed = 0;
    static constexpr FileCalls kFaulty = {.open = open,
                                          .fstat = fstat,
                                          .pread = pread,
                                          .write = write,
                                          .rename = rename,
                                          .opendir = opendir};
    use_file_calls(kFaulty);
  }
  ~FaultyFiles() { use_file_calls(system_file_calls()); }
  FaultyFiles(const FaultyFiles&) = delete;
  FaultyFiles& operator=(const FaultyFiles&) = delete;

  /// Returns how many calls failed or were slow.
  static int failed() { return state().failed; }

 private:
  struct State {
    std::string folder;
    Call call = Call::all;
    int error = 0;
    std::chrono::milliseconds delay{};
    std::atomic<int> failed{0};
  };
  static State& state() {
    static State only;
    return only;
  }

  /// Returns whether the call must fail; slows it down.
  static bool fails(Call call, const char* path) {
    State& now = state();
    if (now.call != call && now.call != Call::all) return false;
    if (path != nullptr && std::string(path).rfind(now.folder, 0) != 0) return false;
    ++now.failed;
    std::this_thread::sleep_for(now.delay);
    errno = now.error;
    return now.error != 0;
  }
  static int open(const char* path, std::size_t root_bytes, int flags, mode_t mode) {
    const Call call = (flags & 3) == 0 ? Call::open_to_read : Call::open_to_write;
    return fails(call, path) ? -1 : system_file_calls().open(path, root_bytes, flags, mode);
  }
  static int fstat(int fd, struct stat* status) {
    return fails(Call::fstat, nullptr) ? -1 : system_file_calls().fstat(fd, status);
  }
  static ssize_t pread(int fd, void* buffer, size_t count, off_t offset) {
    return fails(Call::pread, nullptr) ? -1 : system_file_calls().pread(fd, buffer, count, offset);
  }
  static ssize_t write(int fd, const void* buffer, size_t count) {
    return fails(Call::write, nullptr) ? -1 : system_file_calls().write(fd, buffer, count);
  }
  static int rename(const char* from, const char* to) {
    return fails(Call::rename, to) ? -1 : system_file_calls().rename(from, to);
  }
  static DIR* opendir(const char* path, std::size_t root_bytes) {
    return fails(Call::opendir, path) ? nullptr : system_file_calls().opendir(path, root_bytes);
  }
};

}  // namespace kernwright
