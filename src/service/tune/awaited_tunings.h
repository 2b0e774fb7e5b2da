#pragma once

#include <atomic>
#include <set>

#include "support/mutex.h"

namespace kernwright {

/// The tunings that callers of a service wait for, so that another thread can end them.
/// Thread-safe.
class AwaitedTunings {
 public:
  /// One of them. It counts as running for as long as the object lives.
  class Awaited {
   public:
    explicit Awaited(AwaitedTunings& all) : all_(all) {
      const MutexLock lock(all_.mutex_);
      all_.running_.insert(this);
    }
    ~Awaited() {
      const MutexLock lock(all_.mutex_);
      all_.running_.erase(this);
    }
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

    /// Becomes true when the tuning is to end.
    const std::atomic<bool>* stop() const { return &stop_; }

   private:
    friend class AwaitedTunings;
    AwaitedTunings& all_;
    std::atomic<bool> stop_{false};
  };

  /// Tells all that run now to end.
  void stop() {
    const MutexLock lock(mutex_);
    for (Awaited* tuning : running_) tuning->stop_ = true;
  }

 private:
  Mutex mutex_;
  std::set<Awaited*> running_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
