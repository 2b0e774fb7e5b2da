#include "service/tune/background_tuner.h"

#include <utility>

#include "support/processes/process_exit.h"
#include "support/try.h"

namespace kernwright {

BackgroundTuner::~BackgroundTuner() {
  end();
  thread_.join();
}

void BackgroundTuner::end() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  waiting_.clear();
  changed_.notify_all();
}

Result<void> BackgroundTuner::ask(const Problem& normalized) {
  const std::lock_guard lock(mutex_);
  if (stop_ || exiting() || left_seconds_ <= 0 || asked_.contains(normalized.text())) return {};
  if (!started_) {
    KW_ASSIGN(thread_, Thread::start([this] { run(); }));
    started_ = true;
  }
  asked_.insert(normalized.text());
  waiting_.push_back(normalized);
  changed_.notify_all();
  return {};
}

void BackgroundTuner::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

void BackgroundTuner::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const Problem problem = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    const double used = tune_(problem, stop_);
    lock.lock();
    busy_ = false;
    left_seconds_ -= used;
    if (left_seconds_ <= 0 || exiting()) waiting_.clear();
    changed_.notify_all();
  }
}

}  // namespace kernwright
