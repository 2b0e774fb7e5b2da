#include "support/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <random>
#include <system_error>
#include <unistd.h>

#include "support/file_calls.h"
#include "support/file_descriptor.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

Error io_error(std::string_view what, const fs::path& path, int code) {
  return {ErrorCode::io,
          concat("cannot ", what, " ", path.native(), ": ", std::generic_category().message(code))};
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file_calls().write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// A name for a temporary file beside `path` that no other thread, process or host is using: the
/// random part tells processes apart, the counter threads.
fs::path temporary_beside(const fs::path& path) {
  static const std::uint64_t process_part = [] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }();
  static std::atomic<std::uint64_t> counter{0};
  char suffix[48];
  std::snprintf(
      suffix, sizeof suffix, ".%016llx-%llu.tmp",
      static_cast<unsigned long long>(process_part ^ static_cast<std::uint64_t>(getpid())),
      static_cast<unsigned long long>(counter.fetch_add(1)));
  fs::path temporary = path.parent_path();
  temporary /= concat(".", path.filename().native(), suffix);
  return temporary;
}

}  // namespace

Result<InputFile> InputFile::open(const fs::path& path) {
  // Not blocking: opening a pipe would wait for its writer.
  FileDescriptor file(file_calls().open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
  if (!file.valid()) {
    if (errno == ENOENT) return Error{ErrorCode::not_found, concat("no file ", path.native())};
    return io_error("open", path, errno);
  }
  struct stat status{};
  if (file_calls().fstat(file.get(), &status) != 0) return io_error("read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::io, concat("cannot read ", path.native(), ": not a regular file")};
  }
  return InputFile(path, std::move(file), static_cast<std::uint64_t>(status.st_size));
}

Result<std::string> InputFile::read(std::uint64_t offset, std::size_t count) const {
  std::string bytes(count, '\0');
  std::size_t got = 0;
  while (got < count) {
    const ssize_t read = file_calls().pread(file_.get(), bytes.data() + got, count - got,
                                            static_cast<off_t>(offset + got));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return io_error("read", path_, errno);
    if (read == 0) break;
    got += static_cast<std::size_t>(read);
  }
  bytes.resize(got);
  return bytes;
}

Result<std::string> read_file(const fs::path& path) {
  FileDescriptor file(file_calls().open(path.c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (!file.valid()) {
    if (errno == ENOENT) return Error{ErrorCode::not_found, concat("no file ", path.native())};
    return io_error("open", path, errno);
  }
  std::string bytes;
  std::error_code ignored;
  if (const auto size = fs::file_size(path, ignored); !ignored) bytes.reserve(size);
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("read", path, errno);
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

Result<void> publish_file(const fs::path& path, std::string_view bytes) {
  const fs::path temporary = temporary_beside(path);
  // 0666 and not mkstemp's 0600: a cache may be shared, and the umask is the user's say in it.
  const auto create = [&temporary] {
    return FileDescriptor(
        file_calls().open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  };
  FileDescriptor file = create();
  if (!file.valid() && errno == ENOENT && path.has_parent_path()) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return io_error("create", path.parent_path(), error.value());
    file = create();
  }
  if (!file.valid()) return io_error("create", temporary, errno);
  const bool written = write_all(file.get(), bytes) && file.close() &&
                       file_calls().rename(temporary.c_str(), path.c_str()) == 0;
  if (written) return {};
  const int code = errno;
  ::unlink(temporary.c_str());
  return io_error("publish", path, code);
}

Result<void> append_line(const fs::path& path, std::string_view line) {
  FileDescriptor file(
      file_calls().open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) return io_error("open", path, errno);
  const std::string bytes = concat(line, '\n');
  ssize_t written = 0;
  do {
    written = file_calls().write(file.get(), bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return io_error("append to", path, errno);
  if (static_cast<std::size_t>(written) != bytes.size()) return io_error("append to", path, ENOSPC);
  if (!file.close()) return io_error("append to", path, errno);
  return {};
}

Result<std::vector<std::string>> read_directory(const fs::path& path) {
  const std::unique_ptr<DIR, CloseDirectory> directory(file_calls().opendir(path.c_str()));
  if (!directory) {
    if (errno == ENOENT) return Error{ErrorCode::not_found, "no folder " + path.native()};
    return io_error("read", path, errno);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) return io_error("read", path, errno);
  return names;
}

std::vector<std::string> list_directory(const fs::path& path) {
  Result<std::vector<std::string>> names = read_directory(path);
  if (!names) return {};
  std::sort(names->begin(), names->end());
  return *std::move(names);
}

}  // namespace kernwright
