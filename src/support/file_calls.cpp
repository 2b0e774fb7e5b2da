#include "support/file_calls.h"

#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace kernwright {
namespace {

constexpr FileCalls kSystem = {
    .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
    .fstat = [](int fd, struct stat* status) { return ::fstat(fd, status); },
    .pread = [](int fd, void* buffer, size_t count,
                off_t offset) { return ::pread(fd, buffer, count, offset); },
    .write = [](int fd, const void* buffer, size_t count) { return ::write(fd, buffer, count); },
    .rename = [](const char* from, const char* to) { return std::rename(from, to); },
    .opendir = [](const char* path) { return ::opendir(path); },
};

std::atomic<const FileCalls*> in_use{&kSystem};

}  // namespace

const FileCalls& system_file_calls() { return kSystem; }
const FileCalls& file_calls() { return *in_use.load(std::memory_order_acquire); }
void use_file_calls(const FileCalls& calls) { in_use.store(&calls, std::memory_order_release); }

}  // namespace kernwright
