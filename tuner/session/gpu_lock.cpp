#include "tuner/session/gpu_lock.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/processes/file_lock.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

Error failure(const std::filesystem::path& path) {
  return {ErrorCode::io, concat("lock file ", path.native(), ": ", std::strerror(errno))};
}

/// Returns the text that the holder wrote about itself: "process 4711".
std::string holder(int file) {
  std::array<char, 64> text{};
  const ::ssize_t length = ::pread(file, text.data(), text.size() - 1, 0);
  return length > 0 ? std::string(trim(text.data())) : std::string("another process");
}

}  // namespace

Result<std::filesystem::path> GpuLock::path(std::string_view uuid) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return Error{ErrorCode::io, concat("folder of temporary files: ", error.message())};
  return folder / concat("kernwright-", uuid, ".lock");
}

Result<GpuLock> GpuLock::acquire(std::string_view uuid, const Log& log,
                                 const std::function<bool()>& stopped) {
  KW_ASSIGN(const std::filesystem::path name, path(uuid));
  // The file is never removed, so that whoever waits has the same one. In a shared folder the
  // kernel may forbid to open another user's file with O_CREAT.
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  FileDescriptor file(::open(name.c_str(), kFlags));
  if (!file.valid()) {
    file = FileDescriptor(::open(name.c_str(), kFlags | O_CREAT, 0666));
    if (!file.valid()) return failure(name);
    static_cast<void>(::fchmod(file.get(), 0666));  // whatever the umask
  }
  // A lock that is waited for in the kernel cannot be given up.
  bool waits = false;
  LockAttempt attempt = try_lock(file.get());
  for (; attempt == LockAttempt::busy; attempt = try_lock(file.get())) {
    if (!std::exchange(waits, true) && log) {
      log(concat("waiting for GPU ", uuid, ": ", holder(file.get()), " measures on it"));
    }
    if (stopped()) return Error{ErrorCode::unavailable, concat("no longer waiting for GPU ", uuid)};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (attempt == LockAttempt::failed) return failure(name);
  // For the message above alone.
  const std::string text = concat("process ", ::getpid(), '\n');
  if (::ftruncate(file.get(), 0) == 0) {
    static_cast<void>(::pwrite(file.get(), text.data(), text.size(), 0) == 0);
  }
  return GpuLock(std::move(file));
}

}  // namespace kernwright
