#pragma once

#include <cstddef>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace kernwright {

/// The system calls that files are read and written by, with the meaning of their namesakes: the
/// seam at which tests let a file system fail or be slow. `root_bytes` is the length of the part of
/// `path` that may lead through links; where it is not 0, none that comes behind it may be one, and
/// the error for it is ELOOP or ENOTDIR.
struct FileCalls {
  int (*open)(const char* path, std::size_t root_bytes, int flags, mode_t mode);
  int (*fstat)(int fd, struct stat* status);
  ssize_t (*pread)(int fd, void* buffer, size_t count, off_t offset);
  ssize_t (*write)(int fd, const void* buffer, size_t count);
  int (*rename)(const char* from, const char* to);
  DIR* (*opendir)(const char* path, std::size_t root_bytes);
};

/// Those of the system.
const FileCalls& system_file_calls();

/// Those in use.
const FileCalls& file_calls();

/// Uses `calls`, which outlives the use, in the whole process. For tests alone.
void use_file_calls(const FileCalls& calls);

}  // namespace kernwright
