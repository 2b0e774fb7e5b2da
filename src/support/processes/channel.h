#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "support/file_descriptor.h"
#include <kernwright/result.h>

namespace kernwright {

/// A moment to give up at; `kNoDeadline` never comes.
using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

/// The deadline `seconds` from now.
Deadline deadline_in(double seconds);

/// What travels through a channel: a text, and at most one open file with it.
struct Message {
  std::string text;
  FileDescriptor file;
};

/// One end of a pair of connected sockets. A message is its length, 4 bytes little-endian, then the
/// text; the file goes along with the first byte. Writing to a closed end is an error, never a
/// signal. Used by one thread at a time.
class Channel {
 public:
  Channel() = default;
  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  /// Both ends, closed in programs that are executed. Errors: `io`.
  static Result<std::pair<Channel, Channel>> make_pair();

  /// `file` is -1 for none; it stays the caller's. Errors: `unavailable` where the other end is
  /// closed, `timed_out` where it does not read, `invalid_argument` for a text of more than
  /// `kMaxBytes`, `io`.
  Result<void> send(std::string_view text, int file = -1, Deadline deadline = kNoDeadline);

  /// The next message. Errors: `unavailable` where the other end is closed, `timed_out`, `corrupt`
  /// where a message is cut off or its length is beyond `kMaxBytes`, `io`.
  Result<Message> receive(Deadline deadline = kNoDeadline);

  /// True where a message, or the other end's closing, can be received before the deadline. Errors:
  /// `io`.
  Result<bool> readable(Deadline deadline) const;

  int socket() const { return socket_.get(); }

  /// Far above any message of ours: a length beyond it was never meant as one.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

 private:
  Result<void> send_bytes(std::string_view bytes, int file, Deadline deadline);
  Result<void> receive_bytes(std::string& bytes, std::size_t count, bool starts, Message& message,
                             Deadline deadline);

  FileDescriptor socket_;
};

/// An open file without a name that holds `bytes`, for sending. Errors: `io`.
Result<FileDescriptor> memory_file(const char* name, std::string_view bytes);

/// All bytes of an open file from its start. Errors: `io`.
Result<std::string> read_all(const FileDescriptor& file);

}  // namespace kernwright
