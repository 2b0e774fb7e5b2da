#include "support/file_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "support/file_descriptor.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Opens the path `below` a folder component by component. No component may be a link. For kernels
/// and sandboxes without openat2.
int walk(FileDescriptor folder, std::string_view below, int flags, mode_t mode) {
  const std::vector<std::string_view> parts = split(below, '/');
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i].empty() || parts[i] == ".") continue;
    if (parts[i] == "..") {
      errno = EXDEV;
      return -1;
    }
    constexpr int kStep = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    FileDescriptor next(::openat(folder.get(), std::string(parts[i]).c_str(), kStep));
    if (!next.valid()) return -1;
    folder = std::move(next);
  }
  const std::string last = parts.back().empty() ? "." : std::string(parts.back());
  return ::openat(folder.get(), last.c_str(), flags | O_NOFOLLOW, mode);
}

int open_below(const char* path, std::size_t root_bytes, int flags, mode_t mode) {
  if (root_bytes == 0) return ::open(path, flags, mode);
  const std::string_view whole = path;
  std::string_view below = whole.substr(root_bytes);
  while (below.starts_with('/')) below.remove_prefix(1);
  if (below.empty()) return ::open(path, flags, mode);
  const std::string root(whole.substr(0, root_bytes));
  FileDescriptor folder(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return -1;
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const long opened =
      ::syscall(SYS_openat2, folder.get(), std::string(below).c_str(), &how, sizeof how);
  if (opened >= 0) return static_cast<int>(opened);
  // ENOSYS or EPERM: a kernel or a sandbox does not know the call. EAGAIN: a folder was moved.
  if (errno != ENOSYS && errno != EPERM && errno != EAGAIN) return -1;
  return walk(std::move(folder), below, flags, mode);
}

DIR* open_folder(const char* path, std::size_t root_bytes) {
  const int folder = open_below(path, root_bytes, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) return nullptr;
  DIR* opened = ::fdopendir(folder);
  if (opened == nullptr) ::close(folder);
  return opened;
}

constexpr FileCalls kSystem = {
    .open = open_below,
    .fstat = [](int fd, struct stat* status) { return ::fstat(fd, status); },
    .pread = [](int fd, void* buffer, size_t count,
                off_t offset) { return ::pread(fd, buffer, count, offset); },
    .write = [](int fd, const void* buffer, size_t count) { return ::write(fd, buffer, count); },
    .rename = [](const char* from, const char* to) { return std::rename(from, to); },
    .opendir = open_folder,
};

std::atomic<const FileCalls*> in_use{&kSystem};

}  // namespace

const FileCalls& system_file_calls() { return kSystem; }
const FileCalls& file_calls() { return *in_use.load(std::memory_order_acquire); }
void use_file_calls(const FileCalls& calls) { in_use.store(&calls, std::memory_order_release); }

}  // namespace kernwright
