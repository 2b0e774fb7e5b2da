#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "support/file_descriptor.h"
#include <kernwright/result.h>

namespace kernwright {

/// The time at which a wait is given up; `kNoDeadline` never comes.
using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

/// Returns the deadline `seconds` from now.
Deadline deadline_in(double seconds);

/// A message of a channel: a text, and at most one open file with it.
struct Message {
  std::string text;
  FileDescriptor file;
};

/// One end of a pair of connected sockets. A message is sent as its length, 4 bytes little-endian,
/// and the text; the file goes with the first byte. Writing to a closed end is an error, never a
/// signal. Used by one thread at a time.
class Channel {
 public:
  Channel() = default;
  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  /// Makes both ends of a new pair, with close-on-exec set. Errors: `io`.
  static Result<std::pair<Channel, Channel>> make_pair();

  /// Sends a message. `file` is -1 for none, and stays with the caller. Errors: `unavailable` if
  /// the other end is closed; `timed_out` if it does not read; `invalid_argument` for a text of
  /// more than `kMaxBytes`; `io`.
  Result<void> send(std::string_view text, int file = -1, Deadline deadline = kNoDeadline);

  /// Receives the next message. Errors: `unavailable` if the other end is closed; `timed_out`;
  /// `corrupt` if a message is cut off or longer than `kMaxBytes`; `io`.
  Result<Message> receive(Deadline deadline = kNoDeadline);

  /// Waits until there is something to receive, or the other end is closed. False at the deadline.
  /// Errors: `io`.
  Result<bool> readable(Deadline deadline) const;

  /// Makes calls that wait end with `unavailable` soon after `condition` holds, which is asked
  /// again and again.
  void give_up_when(std::function<bool()> condition) { give_up_ = std::move(condition); }

  int socket() const { return socket_.get(); }

  /// Far above the length of our messages, so a greater length cannot be the length of a message.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

 private:
  Result<void> send_bytes(std::string_view bytes, int file, Deadline deadline);
  Result<void> receive_bytes(std::string& bytes, std::size_t count, bool starts, Message& message,
                             Deadline deadline);
  /// Waits until the socket can be read or written, or the other end is closed.
  Result<void> wait_for(short events, Deadline deadline) const;

  FileDescriptor socket_;
  std::function<bool()> give_up_;  ///< may be empty
};

/// Makes an open file in memory that holds `bytes`, for sending. Errors: `io`.
Result<FileDescriptor> memory_file(const char* name, std::string_view bytes);

/// Reads all bytes of an open file, from its start on. Errors: `io`.
Result<std::string> read_all(const FileDescriptor& file);

}  // namespace kernwright
