#include "support/processes/channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kLengthBytes = 4;
/// A message is read in chunks, so that memory grows with the bytes that arrive and not with the
/// length that the sender promises.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

Error io_error(std::string_view what, int code) {
  return {ErrorCode::io, concat("cannot ", what, ": ", std::generic_category().message(code))};
}

/// The time between two looks of a wait that may be given up.
constexpr std::chrono::milliseconds kLook{20};

timespec timespec_of(Deadline::duration time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  timespec spec{};
  spec.tv_sec = static_cast<std::time_t>(whole.count());
  spec.tv_nsec = static_cast<long>(std::chrono::nanoseconds(time - whole).count());
  return spec;
}

}  // namespace

Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

Result<void> Channel::wait_for(short events, Deadline deadline) const {
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    Deadline until = deadline;
    if (give_up_) {
      if (give_up_()) return Error{ErrorCode::unavailable, "no longer waited for"};
      until = std::min(deadline, now + kLook);
    }
    const timespec timeout = timespec_of(std::max(until - now, Deadline::duration{}));
    pollfd polled{socket_.get(), events, 0};
    const int ready = ::ppoll(&polled, 1, until == kNoDeadline ? nullptr : &timeout, nullptr);
    if (ready > 0) return {};
    if (ready == 0 && until == deadline) {
      return Error{ErrorCode::timed_out, "no answer by the deadline"};
    }
    if (ready < 0 && errno != EINTR) return io_error("wait for a socket", errno);
  }
}

Result<bool> Channel::readable(Deadline deadline) const {
  const auto waited = wait_for(POLLIN, deadline);
  if (!waited && waited.error().code != ErrorCode::timed_out) return waited.error();
  return waited.has_value();
}

Result<std::pair<Channel, Channel>> Channel::make_pair() {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return io_error("make a pair of sockets", errno);
  }
  return std::pair(Channel(FileDescriptor(sockets[0])), Channel(FileDescriptor(sockets[1])));
}

Result<void> Channel::send(std::string_view text, int file, Deadline deadline) {
  if (text.size() > kMaxBytes) {
    return Error{ErrorCode::invalid_argument,
                 concat("a message of ", text.size(), " bytes is above ", kMaxBytes)};
  }
  std::string head(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    head[i] = static_cast<char>(static_cast<std::uint8_t>(text.size() >> (8 * i)));
  }
  KW_TRY(send_bytes(head, file, deadline));
  return send_bytes(text, -1, deadline);
}

Result<void> Channel::send_bytes(std::string_view bytes, int file, Deadline deadline) {
  while (!bytes.empty()) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (file >= 0) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof file);
      std::memcpy(CMSG_DATA(rights), &file, sizeof file);
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      file = -1;
    } else if (errno == EAGAIN) {
      KW_TRY(wait_for(POLLOUT, deadline));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Error{ErrorCode::unavailable, "the other end is closed"};
    } else if (errno != EINTR) {
      return io_error("send a message", errno);
    }
  }
  return {};
}

Result<Message> Channel::receive(Deadline deadline) {
  Message message;
  std::string head;
  KW_TRY(receive_bytes(head, kLengthBytes, true, message, deadline));
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::size_t{static_cast<std::uint8_t>(head[i])} << (8 * i);
  }
  if (length > kMaxBytes) {
    return Error{ErrorCode::corrupt,
                 concat("not a message: its length ", length, " is above ", kMaxBytes)};
  }
  KW_TRY(receive_bytes(message.text, length, false, message, deadline));
  return message;
}

Result<void> Channel::receive_bytes(std::string& bytes, std::size_t count, bool starts,
                                    Message& message, Deadline deadline) {
  std::size_t filled = 0;
  while (filled < count) {
    bytes.resize(std::min(count, filled + kChunkBytes));
    iovec part{bytes.data() + filled, bytes.size() - filled};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
      for (cmsghdr* part_of = CMSG_FIRSTHDR(&header); part_of != nullptr;
           part_of = CMSG_NXTHDR(&header, part_of)) {
        if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
        int file = -1;
        std::memcpy(&file, CMSG_DATA(part_of), sizeof file);
        message.file = FileDescriptor(file);
      }
    } else if (got == 0 || errno == ECONNRESET) {
      if (starts && filled == 0) return Error{ErrorCode::unavailable, "the other end is closed"};
      return Error{ErrorCode::corrupt, concat("a message was cut off: ", filled, " of ", count,
                                              starts ? " bytes of its length" : " bytes")};
    } else if (errno == EAGAIN) {
      KW_TRY(wait_for(POLLIN, deadline));
    } else if (errno != EINTR) {
      return io_error("receive a message", errno);
    }
  }
  return {};
}

Result<FileDescriptor> memory_file(const char* name, std::string_view bytes) {
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file.valid()) return io_error("make a file in memory", errno);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error("write a file in memory", errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

Result<std::string> read_all(const FileDescriptor& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return io_error("read a passed file", errno);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::pread(file.get(), bytes.data() + filled, bytes.size() - filled,
                                static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("read a passed file", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace kernwright
