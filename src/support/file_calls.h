#pragma once

#include <cstddef>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace kernwright {

/// The system calls that read and write files, with the meaning of their namesakes. Tests replace
/// them to let a file system fail or be slow. `root_bytes` is the length of the part of `path` that
/// may lead through links. If it is not 0, no component after it may be a link, and the error for
/// one is ELOOP or ENOTDIR.
struct FileCalls {
  int (*open)(const char* path, std::size_t root_bytes, int flags, mode_t mode);
  int (*fstat)(int fd, struct stat* status);
  ssize_t (*pread)(int fd, void* buffer, size_t count, off_t offset);
  ssize_t (*write)(int fd, const void* buffer, size_t count);
  int (*rename)(const char* from, const char* to);
  DIR* (*opendir)(const char* path, std::size_t root_bytes);
};

/// Returns the calls of the system.
const FileCalls& system_file_calls();

/// Returns the calls in use.
const FileCalls& file_calls();

/// Replaces the calls in use in the whole process. `calls` must outlive that. For tests alone.
void use_file_calls(const FileCalls& calls);

}  // namespace kernwright
