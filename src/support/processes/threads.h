#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <pthread.h>
#include <string>

#include "support/processes/process_exit.h"
#include <kernwright/result.h>

namespace kernwright {

/// A thread. A start that fails, at a limit of the user or the container, is an error; std::thread
/// would throw, and TBB's workers would end the process. Its stack has the size with which
/// compilers are tested, whatever the process's limit is. Invariant: the thread has ended or was
/// detached when the object is destroyed.
class Thread {
 public:
  /// Starts a thread that runs `work`. Errors: `unavailable` with the limit; the error of
  /// `check_not_forked`.
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

/// Returns the number of cores that this process may run on.
int available_cores();

/// Calls `call` with 0 to `count` - 1. It uses as many threads as there are cores, the calling
/// thread among them, or fewer if no more can be started, and the calling thread alone if this is
/// within a call of another `parallel_for`. Rethrows the first exception of a call.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& call);

/// Checks that this process may use threads. Errors: `unavailable` in a process that was forked
/// from one that had started threads. A fork copies only the thread that forks, so the results of
/// other threads would never come, and their locks would stay locked.
Result<void> check_not_forked();

/// Deletes an object that has threads or a process of its own. A forked process leaves the object
/// alone: the threads are its parent's, and there is nothing that it could wait for. So does a
/// process that exits: the object's threads may be held up, and use the rest of it.
struct DeleteInThisProcess {
  template <typename Owner>
  void operator()(Owner* owner) const {
    if (!exiting() && check_not_forked()) delete owner;
  }
};

/// Returns " (limits ...)": how many threads a user may have, for messages about a start that
/// failed.
std::string limit_of_threads();

}  // namespace kernwright
