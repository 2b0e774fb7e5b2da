#include "support/libraries/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "support/libraries/dynamic_library.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The functions of libarchive that are used, under their names.
struct Library {
  // clang-format off
#define KERNWRIGHT_LIBARCHIVE(X) \
  X(archive_error_string) X(archive_write_new) X(archive_write_free) \
  X(archive_write_add_filter_zstd) X(archive_write_set_format_pax_restricted) \
  X(archive_write_open_fd) X(archive_write_header) X(archive_write_data) \
  X(archive_write_close) X(archive_read_new) X(archive_read_free) \
  X(archive_read_support_filter_zstd) X(archive_read_support_format_tar) \
  X(archive_read_open_fd) X(archive_read_next_header) X(archive_read_data) \
  X(archive_entry_new) X(archive_entry_free) X(archive_entry_set_pathname) \
  X(archive_entry_set_size) X(archive_entry_set_filetype) X(archive_entry_set_perm) \
  X(archive_entry_set_mtime) X(archive_entry_set_uid) X(archive_entry_set_gid) \
  X(archive_entry_pathname) X(archive_entry_size) X(archive_entry_filetype) \
  X(archive_entry_hardlink) X(archive_entry_uid) X(archive_entry_gid)
// clang-format on
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name cannot stand in parentheses
#define KERNWRIGHT_MEMBER(name) decltype(&::name) name = nullptr;
  KERNWRIGHT_LIBARCHIVE(KERNWRIGHT_MEMBER)
#undef KERNWRIGHT_MEMBER
};

Result<Library> load() {
  const Result<DynamicLibrary> opened = DynamicLibrary::open({"libarchive.so.13"});
  if (!opened) return opened.error();
  Library library;
  std::string missing;
  const auto resolve = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(opened->symbol(name));
    if (function == nullptr) missing += concat(' ', name);
  };
#define KERNWRIGHT_RESOLVE(name) resolve(library.name, #name);
  KERNWRIGHT_LIBARCHIVE(KERNWRIGHT_RESOLVE)
#undef KERNWRIGHT_RESOLVE
#undef KERNWRIGHT_LIBARCHIVE
  if (missing.empty()) return library;
  return Error{ErrorCode::unavailable, concat(opened->name(), " lacks", missing)};
}

const Result<Library>& libarchive() {
  static const Result<Library> loaded = load();
  return loaded;
}

std::string words(const Library& library, archive* of) {
  const char* text = library.archive_error_string(of);
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

struct TarWriter::State {
  const Library& library;
  std::filesystem::path path;
  OutputFile file;
  archive* handle;

  State(const Library& l, std::filesystem::path p, OutputFile f)
      : library(l), path(std::move(p)), file(std::move(f)), handle(l.archive_write_new()) {}
  ~State() { library.archive_write_free(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Error failure() const {
    return {ErrorCode::io, concat("cannot write ", path.native(), ": ", words(library, handle))};
  }
};

TarWriter::TarWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;
TarWriter::~TarWriter() = default;

Result<TarWriter> TarWriter::create(const std::filesystem::path& path) {
  const Result<Library>& library = libarchive();
  if (!library) return library.error();
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  auto state = std::make_unique<State>(*library, path, *std::move(file));
  const bool open =
      library->archive_write_add_filter_zstd(state->handle) == ARCHIVE_OK &&
      library->archive_write_set_format_pax_restricted(state->handle) == ARCHIVE_OK &&
      library->archive_write_open_fd(state->handle, state->file.descriptor()) == ARCHIVE_OK;
  if (!open) return state->failure();
  return TarWriter(std::move(state));
}

Result<void> TarWriter::add(std::string_view name, std::string_view bytes) {
  const Library& library = state_->library;
  archive_entry* entry = library.archive_entry_new();
  library.archive_entry_set_pathname(entry, std::string(name).c_str());
  library.archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
  library.archive_entry_set_filetype(entry, AE_IFREG);
  library.archive_entry_set_perm(entry, 0444);
  library.archive_entry_set_mtime(entry, 0, 0);
  library.archive_entry_set_uid(entry, 0);
  library.archive_entry_set_gid(entry, 0);
  const int header = library.archive_write_header(state_->handle, entry);
  library.archive_entry_free(entry);
  if (header != ARCHIVE_OK) return state_->failure();
  while (!bytes.empty()) {
    const la_ssize_t written =
        library.archive_write_data(state_->handle, bytes.data(), bytes.size());
    if (written <= 0) return state_->failure();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> TarWriter::finish() {
  if (state_->library.archive_write_close(state_->handle) != ARCHIVE_OK) return state_->failure();
  return state_->file.publish();
}

struct TarReader::State {
  const Library& library;
  std::filesystem::path path;
  InputFile file;
  archive* handle;

  State(const Library& l, std::filesystem::path p, InputFile f)
      : library(l), path(std::move(p)), file(std::move(f)), handle(l.archive_read_new()) {}
  ~State() { library.archive_read_free(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Error failure() const {
    return {ErrorCode::corrupt,
            concat("cannot read ", path.native(), ": ", words(library, handle))};
  }
};

TarReader::TarReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;
TarReader::~TarReader() = default;

Result<TarReader> TarReader::open(const std::filesystem::path& path, const FileKind& kind) {
  const Result<Library>& library = libarchive();
  if (!library) return library.error();
  Result<InputFile> file = InputFile::open(path, kind);
  if (!file) return file.error();
  constexpr std::size_t kBlockBytes = 1 << 16;
  auto state = std::make_unique<State>(*library, path, *std::move(file));
  // One filter and one format alone: what else libarchive reads is no bundle of ours.
  const bool open = library->archive_read_support_filter_zstd(state->handle) == ARCHIVE_OK &&
                    library->archive_read_support_format_tar(state->handle) == ARCHIVE_OK &&
                    library->archive_read_open_fd(state->handle, state->file.descriptor(),
                                                  kBlockBytes) == ARCHIVE_OK;
  if (!open) return state->failure();
  return TarReader(std::move(state));
}

Result<std::optional<TarEntry>> TarReader::next() {
  const Library& library = state_->library;
  archive_entry* entry = nullptr;
  const int status = library.archive_read_next_header(state_->handle, &entry);
  if (status == ARCHIVE_EOF) return std::optional<TarEntry>();
  if (status != ARCHIVE_OK) return state_->failure();
  TarEntry read;
  const char* name = library.archive_entry_pathname(entry);
  read.name = name == nullptr ? "" : name;
  read.regular = library.archive_entry_filetype(entry) == AE_IFREG &&
                 library.archive_entry_hardlink(entry) == nullptr;
  const la_int64_t user = library.archive_entry_uid(entry);
  read.owner = user != 0 ? user : library.archive_entry_gid(entry);
  read.bytes = static_cast<std::uint64_t>(library.archive_entry_size(entry));
  return std::optional(std::move(read));
}

Result<std::string> TarReader::read(std::uint64_t most) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const la_ssize_t count =
        state_->library.archive_read_data(state_->handle, buffer, sizeof buffer);
    if (count < 0) return state_->failure();
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<std::size_t>(count));
    if (bytes.size() > most) {
      return Error{ErrorCode::corrupt, concat("an entry of ", state_->path.native(),
                                              " has more than ", most, " bytes")};
    }
  }
}

}  // namespace kernwright
