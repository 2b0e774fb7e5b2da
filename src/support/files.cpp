#include "support/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <random>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

#include "support/file_calls.h"
#include "support/file_descriptor.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

bool is_hex_digit(char c) { return is_digit(c) || (to_lower(c) >= 'a' && to_lower(c) <= 'f'); }

/// Returns whether `name`, which names no file, may be a key: hex digits, in a run longer than a
/// digest or as the whole name, or base64.
bool looks_like_key(std::string_view name) {
  constexpr std::size_t kShortestKey = 40;
  constexpr std::size_t kDigestDigits = 64;
  name = trim(name);
  std::size_t longest = 0;
  for (std::size_t i = 0, digits = 0; i < name.size(); ++i) {
    digits = is_hex_digit(name[i]) ? digits + 1 : 0;
    longest = std::max(longest, digits);
  }
  if (longest > kDigestDigits || (longest == name.size() && longest >= kShortestKey)) return true;
  const auto is_base64 = [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("+/=-_").find(c) != std::string::npos;
  };
  const auto is_upper = [](char c) { return is_letter(c) && to_lower(c) != c; };
  const auto is_lower = [](char c) { return is_letter(c) && to_lower(c) == c; };
  std::error_code error;
  return name.size() >= kShortestKey && name.front() != '/' &&
         std::ranges::all_of(name, is_base64) && std::ranges::any_of(name, is_upper) &&
         std::ranges::any_of(name, is_lower) && std::ranges::any_of(name, is_digit) &&
         !fs::exists(name.substr(0, name.find('/')), error);
}

/// Returns the name for a missing file in messages. A user may by mistake pass the contents of a
/// key file instead of its name, and these must not appear in a log.
std::string missing_name(const fs::path& path) {
  const std::string& name = path.native();
  if (!looks_like_key(name)) return name;
  return concat("of a name of ", name.size(), " bytes that looks like a key");
}

bool is_missing(int code) { return code == ENOENT || code == ENAMETOOLONG || code == ENOTDIR; }

Error io_error(std::string_view what, const fs::path& path, int code) {
  return {ErrorCode::io,
          concat("cannot ", what, " ", is_missing(code) ? missing_name(path) : path.native(), ": ",
                 std::generic_category().message(code))};
}

/// Returns the `root_bytes` for `FileCalls`: the path begins with `within`, if that is given.
std::size_t root_bytes(const fs::path& within) { return within.native().size(); }

Error open_error(std::string_view what, const fs::path& path, const fs::path& within, int code) {
  if (code == ENOENT) return {ErrorCode::not_found, concat("no file ", missing_name(path))};
  // Opening a pipe that has no reader, or a socket, fails with this code.
  if (code == ENXIO) {
    return {ErrorCode::io, concat("cannot ", what, " ", path.native(), ": not a regular file")};
  }
  if (code == ELOOP && !within.empty()) {
    return {ErrorCode::io,
            concat("cannot ", what, " ", path.native(), ": there is a link in it below ",
                   within.native(), ", and none is followed there")};
  }
  return io_error(what, path, code);
}

Error too_long(const fs::path& path, std::uint64_t bytes, const FileKind& kind) {
  return {ErrorCode::corrupt, concat("cannot read ", path.native(), ": ", bytes,
                                     " bytes, the most of a ", kind.name, " is ", kind.most_bytes)};
}

/// Returns the length of an open file. Errors: `io` if it is not a regular file.
Result<std::uint64_t> check_regular(std::string_view what, const fs::path& path,
                                    const FileDescriptor& file) {
  struct stat status{};
  if (file_calls().fstat(file.get(), &status) != 0) return io_error(what, path, errno);
  if (S_ISREG(status.st_mode)) return static_cast<std::uint64_t>(status.st_size);
  return Error{ErrorCode::io, concat("cannot ", what, " ", path.native(), ": not a regular file")};
}

/// Opens a file for writing, and creates it and the folders above it if they are missing.
FileDescriptor open_to_write(const fs::path& path, const fs::path& within, int flags) {
  const auto open = [&] {
    return FileDescriptor(file_calls().open(path.c_str(), root_bytes(within),
                                            flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  };
  FileDescriptor file = open();
  if (file.valid() || errno != ENOENT || !path.has_parent_path()) return file;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (!error) return open();
  errno = error.value();
  return file;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file_calls().write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Makes a name for a temporary file beside `path` that no other thread, process or host uses. The
/// random part differs between processes, the counter between threads.
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

/// Returns whether `name` belongs to a temporary file beside a file called `target`.
bool is_temporary_of(std::string_view name, std::string_view target) {
  const std::string begin = concat('.', target, '.');
  constexpr std::string_view kEnd = ".tmp";
  constexpr std::size_t kRandomDigits = 16;
  if (!name.starts_with(begin) || !name.ends_with(kEnd)) return false;
  name = name.substr(0, name.size() - kEnd.size());
  if (name.size() <= begin.size() + kRandomDigits + 1) return false;
  name.remove_prefix(begin.size());
  const std::string_view counter = name.substr(kRandomDigits + 1);
  return name.find_first_not_of("0123456789abcdef") == kRandomDigits &&
         name[kRandomDigits] == '-' &&
         counter.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Removes the temporary files beside `path` that killed writers of it left behind. A writer holds
/// a lock as long as it lives. If the file system has no locks, files older than an hour are
/// removed.
void remove_leftovers(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const std::string target = path.filename().native();
  for (const std::string& name : list_directory(folder)) {
    if (!is_temporary_of(name, target)) continue;
    const fs::path file = folder / name;
    const FileDescriptor opened(
        ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status{};
    if (!opened.valid() || ::fstat(opened.get(), &status) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) continue;
    const bool locked = ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0;
    const bool is_old = ::time(nullptr) - status.st_mtime > 3600;
    if (locked || (errno != EWOULDBLOCK && is_old)) ::unlink(file.c_str());
  }
}

/// Keeps the lock of `file` beyond its end, until the file has its name.
FileDescriptor same_lock(const FileDescriptor& file) {
  return FileDescriptor(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
}

/// Takes the lock by which `remove_leftovers` knows that a temporary file has a writer. Returns
/// false if `remove_leftovers` was faster and has removed the file.
bool keep_from_removal(const FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat status{};
  return ::fstat(file.get(), &status) != 0 || status.st_nlink > 0;
}

}  // namespace

Result<InputFile> InputFile::open(const fs::path& path, const FileKind& kind,
                                  const fs::path& within) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  FileDescriptor file(file_calls().open(path.c_str(), root_bytes(within), kFlags, 0));
  if (!file.valid()) return open_error("open", path, within, errno);
  KW_ASSIGN(const std::uint64_t bytes, check_regular("read", path, file));
  if (bytes > kind.most_bytes) return too_long(path, bytes, kind);
  return InputFile(path, std::move(file), bytes);
}

Result<std::string> InputFile::read(std::uint64_t offset, std::size_t count) const {
  std::string bytes;
  try {
    bytes.resize(count);
  } catch (const std::exception&) {
    return Error{ErrorCode::io,
                 concat("cannot read ", path_.native(), ": no memory for ", count, " bytes")};
  }
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

Result<std::string> read_file(const fs::path& path, const FileKind& kind, const fs::path& within) {
  KW_ASSIGN(const InputFile file, InputFile::open(path, kind, within));
  // The length is only a hint: files of /proc have length 0, and other files grow.
  constexpr std::uint64_t kBlock = 1 << 16;
  std::uint64_t wanted = std::max(file.bytes() + 1, kBlock);
  for (;;) {
    Result<std::string> bytes = file.read(0, static_cast<std::size_t>(wanted));
    if (!bytes) return bytes;
    if (bytes->size() > kind.most_bytes) return too_long(path, bytes->size(), kind);
    if (bytes->size() < wanted) return bytes;
    wanted = std::min(4 * wanted, kind.most_bytes + 1);
  }
}

Result<OutputFile> OutputFile::create(const fs::path& path, const fs::path& within) {
  struct stat there{};
  if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return Error{ErrorCode::io,
                 concat("cannot write ", path.native(), ": what is there is no regular file")};
  }
  // Leftovers in a cache are removed by `prune`.
  if (within.empty()) remove_leftovers(path);
  for (;;) {
    fs::path temporary = temporary_beside(path);
    // 0666 and not mkstemp's 0600, because a cache may be shared; the user's umask limits it.
    FileDescriptor file = open_to_write(temporary, within, O_EXCL);
    if (!file.valid()) {
      const int code = errno;
      return code == ENOENT ? io_error("create", temporary, code)
                            : open_error("create", temporary, within, code);
    }
    if (!within.empty() || keep_from_removal(file)) {
      return OutputFile(path, std::move(temporary), std::move(file));
    }
    ::unlink(temporary.c_str());
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> OutputFile::write(std::string_view bytes) {
  if (write_all(file_.get(), bytes)) return {};
  return io_error("write", path_, errno);
}

Result<void> OutputFile::publish() {
  const FileDescriptor lock = same_lock(file_);
  const bool published =
      file_.close() && file_calls().rename(temporary_.c_str(), path_.c_str()) == 0;
  if (!published) return io_error("publish", path_, errno);
  temporary_.clear();
  return {};
}

Result<void> publish_file(const fs::path& path, std::string_view bytes, const fs::path& within) {
  KW_ASSIGN(OutputFile file, OutputFile::create(path, within));
  KW_TRY(file.write(bytes));
  return file.publish();
}

Result<void> create_file(const fs::path& path, std::string_view bytes, mode_t mode) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  remove_leftovers(path);
  const fs::path temporary = temporary_beside(path);
  FileDescriptor file(file_calls().open(temporary.c_str(), 0, kFlags, mode));
  if (!file.valid()) return io_error("create", path, errno);
  keep_from_removal(file);
  // The whole file gets its name at once, unless that is taken. Some file systems support only one
  // of the ways.
  const auto give_name = [&] {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      return true;
    }
    return errno != EEXIST && ::link(temporary.c_str(), path.c_str()) == 0 &&
           ::unlink(temporary.c_str()) == 0;
  };
  const FileDescriptor lock = same_lock(file);
  const bool written = write_all(file.get(), bytes) && file.close();
  if (written && give_name()) return {};
  const int code = errno;
  ::unlink(temporary.c_str());
  return io_error(written ? "create" : "write", path, code);
}

Result<void> append_line(const fs::path& path, std::string_view line, const FileKind& kind,
                         const fs::path& within) {
  constexpr std::string_view kWhat = "append to";
  FileDescriptor file = open_to_write(path, within, O_APPEND | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (!file.valid()) {
    const int code = errno;
    return code == ENOENT ? io_error(kWhat, path, code) : open_error(kWhat, path, within, code);
  }
  KW_ASSIGN(const std::uint64_t before, check_regular(kWhat, path, file));
  const std::string bytes = concat(line, '\n');
  if (before + bytes.size() > kind.most_bytes) {
    return Error{ErrorCode::io, concat("cannot append to ", path.native(), ": it would have ",
                                       before + bytes.size(), " bytes, the most of a ", kind.name,
                                       " is ", kind.most_bytes)};
  }
  ssize_t written = 0;
  do {
    written = file_calls().write(file.get(), bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return io_error(kWhat, path, errno);
  if (static_cast<std::size_t>(written) != bytes.size()) return io_error(kWhat, path, ENOSPC);
  if (!file.close()) return io_error(kWhat, path, errno);
  return {};
}

namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

/// Calls `use` with every entry of a directory but `.` and `..`.
template <typename Use>
Result<void> each_entry(const fs::path& path, const fs::path& within, const Use& use) {
  const std::unique_ptr<DIR, CloseDirectory> directory(
      file_calls().opendir(path.c_str(), root_bytes(within)));
  if (!directory) {
    if (errno == ENOENT) return Error{ErrorCode::not_found, "no folder " + path.native()};
    return open_error("read", path, within, errno);
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") use(::dirfd(directory.get()), *entry);
  }
  if (errno != 0) return io_error("read", path, errno);
  return {};
}

bool is_folder(int directory, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat status{};
  return ::fstatat(directory, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(status.st_mode);
}

}  // namespace

Result<std::vector<std::string>> read_directory(const fs::path& path, const fs::path& within) {
  std::vector<std::string> names;
  KW_TRY(each_entry(path, within,
                    [&names](int, const dirent& entry) { names.emplace_back(entry.d_name); }));
  return names;
}

std::vector<std::string> list_directory(const fs::path& path) {
  Result<std::vector<std::string>> names = read_directory(path);
  if (!names) return {};
  std::sort(names->begin(), names->end());
  return *std::move(names);
}

FilesBelow files_below(const fs::path& folder, const fs::path& within) {
  FilesBelow found;
  std::vector<fs::path> pending{folder};
  while (!pending.empty()) {
    const fs::path next = std::move(pending.back());
    pending.pop_back();
    const Result<void> read = each_entry(next, within, [&](int directory, const dirent& entry) {
      (is_folder(directory, entry) ? pending : found.files).push_back(next / entry.d_name);
    });
    // A folder that has been removed meanwhile holds nothing.
    if (!read && read.error().code != ErrorCode::not_found) {
      found.unread.push_back({next, read.error()});
    }
  }
  std::sort(found.files.begin(), found.files.end());
  return found;
}

}  // namespace kernwright
