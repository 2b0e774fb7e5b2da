#pragma once

#include <atomic>
#include <mutex>
#include <set>

namespace kernwright {

/// The tunings that callers of a service wait for, so that another thread can end them.
/// Thread-safe.
class AwaitedTunings {
 public:
  /// One of them. It counts as running for as long as the object lives.
  class Awaited {
   public:
    explicit Awaited(AwaitedTunings& all) : all_(all) {
      const std::lock_guard lock(all_.mutex_);
      all_.running_.insert(this);
    }
    ~Awaited() {
      const std::lock_guard lock(all_.mutex_);
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
    const std::lock_guard lock(mutex_);
    for (Awaited* tuning : running_) tuning->stop_ = true;
  }

 private:
  std::mutex mutex_;
  std::set<Awaited*> running_;
};

}  // namespace kernwright
