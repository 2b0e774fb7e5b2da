#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "support/processes/channel.h"
#include <kernwright/result.h>

namespace kernwright {

/// The end of a process.
struct ExitStatus {
  int code = 0;    ///< exit status
  int signal = 0;  ///< that ended it; 0: it exited by itself

  /// Returns "exit status 3" or "signal 11 (SIGSEGV)".
  std::string text() const;
};

struct SpawnOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;          ///< after the program's name
  std::vector<std::string> removed_variables;  ///< of the environment, by name
};

/// A process that was started by `posix_spawn`, because the caller may hold a CUDA context, which
/// does not survive a fork. It leads a process group of its own. It gets one end of a channel as
/// descriptor 3 and nothing else of ours: stdin and stdout are /dev/null, and its stderr is kept.
/// Invariant: the process is killed when the object is destroyed, and reaped then or, if the kernel
/// holds it up, by a later start.
class Subprocess {
 public:
  /// Starts a program. Errors: `io` with the program and the reason.
  static Result<Subprocess> spawn(const SpawnOptions& options);

  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();

  pid_t pid() const { return pid_; }
  Channel& channel() { return channel_; }

  /// Sends SIGKILL to the whole group.
  void kill();

  /// Reaps the process and returns its status; nullopt if it still runs at the deadline.
  std::optional<ExitStatus> wait(Deadline deadline);

  /// Returns the end of its stderr, on one line.
  std::string last_words() const;

 private:
  Subprocess(pid_t pid, Channel channel, FileDescriptor errors);

  pid_t owner_;  ///< the process that started it
  pid_t pid_ = -1;
  std::optional<ExitStatus> ended_;
  Channel channel_;
  FileDescriptor errors_;
};

/// Returns the channel from the parent. Called in the child. From then on the process ends when its
/// parent ends, whatever it does at that time: by the parent-death signal, and by the closed
/// channel. Errors: `unavailable` if this process was not started by `Subprocess::spawn`.
Result<Channel> inherited_channel();

}  // namespace kernwright
