#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <pthread.h>
#include <string>

#include <kernwright/result.h>

namespace kernwright {

/// A thread whose start may fail with an error, as it does at a limit of the user or the container:
/// std::thread throws, and TBB's workers end the process. It has the stack that compilers are
/// tested on, whatever the process's limit is. Invariant: it has ended, or was detached, before the
/// owner is gone.
class Thread {
 public:
  /// Errors: `unavailable` naming the limit; that of `check_not_forked`.
  static Result<Thread> start(std::function<void()> work);

  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  void join();
  void detach();

 private:
  explicit Thread(pthread_t thread) : thread_(thread), joinable_(true) {}

  pthread_t thread_{};
  bool joinable_ = false;
};

/// The cores that this process may run on.
int available_cores();

/// Calls `call` with 0 to `count` - 1 on as many threads as there are cores, this one among them,
/// and on fewer where no more can be started. The first exception of a call is thrown here.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& call);

/// A fork copies no thread but the one that forks. Errors: `unavailable` in a process that was
/// forked from one which had started threads: what they owe would be waited for without end, and
/// the locks that they held stay locked.
Result<void> check_not_forked();

/// " (limits ...)": how many threads a user may have, for messages about a start that failed.
std::string limit_of_threads();

}  // namespace kernwright
