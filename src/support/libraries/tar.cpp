#include "support/libraries/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <cstddef>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

std::string words(archive* of) {
  const char* text = archive_error_string(of);
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

struct TarWriter::State {
  std::filesystem::path path;
  OutputFile file;
  archive* handle;

  State(std::filesystem::path p, OutputFile f)
      : path(std::move(p)), file(std::move(f)), handle(archive_write_new()) {}
  ~State() { archive_write_free(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Error failure() const {
    return {ErrorCode::io, concat("cannot write ", path.native(), ": ", words(handle))};
  }
};

TarWriter::TarWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;
TarWriter::~TarWriter() = default;

Result<TarWriter> TarWriter::create(const std::filesystem::path& path) {
  KW_ASSIGN(OutputFile file, OutputFile::create(path));
  auto state = std::make_unique<State>(path, std::move(file));
  const bool open = archive_write_add_filter_zstd(state->handle) == ARCHIVE_OK &&
                    archive_write_set_format_pax_restricted(state->handle) == ARCHIVE_OK &&
                    archive_write_open_fd(state->handle, state->file.descriptor()) == ARCHIVE_OK;
  if (!open) return state->failure();
  return TarWriter(std::move(state));
}

Result<void> TarWriter::add(std::string_view name, std::string_view bytes) {
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, std::string(name).c_str());
  archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_perm(entry, 0444);
  archive_entry_set_mtime(entry, 0, 0);
  archive_entry_set_uid(entry, 0);
  archive_entry_set_gid(entry, 0);
  const int header = archive_write_header(state_->handle, entry);
  archive_entry_free(entry);
  if (header != ARCHIVE_OK) return state_->failure();
  while (!bytes.empty()) {
    const la_ssize_t written = archive_write_data(state_->handle, bytes.data(), bytes.size());
    if (written <= 0) return state_->failure();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> TarWriter::finish() {
  if (archive_write_close(state_->handle) != ARCHIVE_OK) return state_->failure();
  return state_->file.publish();
}

struct TarReader::State {
  std::filesystem::path path;
  InputFile file;
  archive* handle;

  State(std::filesystem::path p, InputFile f)
      : path(std::move(p)), file(std::move(f)), handle(archive_read_new()) {}
  ~State() { archive_read_free(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Error failure() const {
    return {ErrorCode::corrupt, concat("cannot read ", path.native(), ": ", words(handle))};
  }
};

TarReader::TarReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;
TarReader::~TarReader() = default;

Result<TarReader> TarReader::open(const std::filesystem::path& path, const FileKind& kind) {
  KW_ASSIGN(InputFile file, InputFile::open(path, kind));
  constexpr std::size_t kBlockBytes = 1 << 16;
  auto state = std::make_unique<State>(path, std::move(file));
  // One filter and one format: libarchive's others are never used for our bundles.
  const bool open =
      archive_read_support_filter_zstd(state->handle) == ARCHIVE_OK &&
      archive_read_support_format_tar(state->handle) == ARCHIVE_OK &&
      archive_read_open_fd(state->handle, state->file.descriptor(), kBlockBytes) == ARCHIVE_OK;
  if (!open) return state->failure();
  return TarReader(std::move(state));
}

Result<std::optional<TarEntry>> TarReader::next() {
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(state_->handle, &entry);
  if (status == ARCHIVE_EOF) return std::optional<TarEntry>();
  if (status != ARCHIVE_OK) return state_->failure();
  TarEntry read;
  const char* name = archive_entry_pathname(entry);
  read.name = name == nullptr ? "" : name;
  read.regular =
      archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
  const la_int64_t user = archive_entry_uid(entry);
  read.owner = user != 0 ? user : archive_entry_gid(entry);
  read.bytes = static_cast<std::uint64_t>(archive_entry_size(entry));
  return std::optional(std::move(read));
}

Result<std::string> TarReader::read(std::uint64_t most) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const la_ssize_t count = archive_read_data(state_->handle, buffer, sizeof buffer);
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
