#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/mutex.h"
#include "support/processes/threads.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// Works on problems on threads of its own, on each once and in the order of asking, until its
/// budget is used up. Thread-safe. Destruction ends it.
class BackgroundQueue {
 public:
  /// Works on one problem, gives up soon after `stop` becomes true, and returns the seconds of the
  /// budget that it used.
  using Work = std::function<double(const Problem& normalized, const std::atomic<bool>& stop)>;

  /// Works on at most `threads` problems at a time.
  BackgroundQueue(double budget_seconds, int threads, Work work)
      : work_(std::move(work)),
        most_threads_(static_cast<std::size_t>(threads)),
        left_seconds_(budget_seconds) {}
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  /// Does nothing if it was asked for the same problem before. Starts a thread if all are at work.
  /// Errors: if the first thread cannot be started; the problem may be asked for again then.
  Result<void> ask(const Problem& normalized);

  /// Drops the problems that have not begun, stops those that have, and takes no more. Does not
  /// wait.
  void end();

  /// Waits until nothing is left to do.
  void wait();

 private:
  void run();

  const Work work_;
  const std::size_t most_threads_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Problem> waiting_ KW_GUARDED_BY(mutex_);
  std::set<std::string> asked_ KW_GUARDED_BY(mutex_);
  double left_seconds_ KW_GUARDED_BY(mutex_);
  std::size_t busy_ KW_GUARDED_BY(mutex_) = 0;
  std::vector<Thread> threads_;  // last: they use all others
};

}  // namespace kernwright
