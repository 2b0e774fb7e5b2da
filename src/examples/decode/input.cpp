#include "input.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace decode {
namespace {

using nlohmann::json;

kw::Error unread(const std::string& path, const std::string& why) {
  return {kw::ErrorCode::io, path + ": cannot be read: " + why};
}

kw::Error unread(const std::string& path, int code) {
  return unread(path, std::generic_category().message(code));
}

}  // namespace

kw::Result<InputFile> InputFile::open(const std::string& path) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return unread(path, errno);
  std::shared_ptr<const int> owner(new int(file), [](const int* opened) {
    ::close(*opened);
    delete opened;
  });
  struct stat status{};
  if (::fstat(file, &status) != 0) return unread(path, errno);
  if (!S_ISREG(status.st_mode)) return unread(path, "not a regular file");
  return InputFile(path, std::move(owner), static_cast<std::uint64_t>(status.st_size));
}

kw::Result<std::string> InputFile::read(std::uint64_t offset, std::uint64_t count) const {
  std::string bytes(count, '\0');
  for (std::uint64_t got = 0; got < count;) {
    const ssize_t read =
        ::pread(*file_, bytes.data() + got, count - got, static_cast<off_t>(offset + got));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return unread(path_, errno);
    if (read == 0) {
      return unread(path_, "it ends at byte " + std::to_string(offset + got) + ", expected " +
                               std::to_string(offset + count));
    }
    got += static_cast<std::uint64_t>(read);
  }
  return bytes;
}

kw::Result<std::string> read_text(const std::string& path, std::uint64_t most) {
  const kw::Result<InputFile> file = InputFile::open(path);
  if (!file) return file.error();
  if (file->bytes() > most) {
    return kw::Error{kw::ErrorCode::corrupt, path + ": has " + std::to_string(file->bytes()) +
                                                 " bytes, the most is " + std::to_string(most)};
  }
  return file->read(0, file->bytes());
}

json parse_json(std::string_view text) {
  constexpr int kMostDepth = 64;
  bool too_deep = false;
  // Values that are too deep are left out as they are read, so that nothing of them must be
  // destroyed.
  const auto keep = [&](int depth, json::parse_event_t event, const json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    too_deep = too_deep || (opens && depth >= kMostDepth);
    return !too_deep;
  };
  json value = json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) return json::value_t::discarded;
  return value;
}

std::string shown(const json& value) {
  constexpr std::size_t kMost = 200;
  const std::string text = value.dump();
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace decode
