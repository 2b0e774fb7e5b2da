#include "service/tune/background_queue.h"

#include <utility>

#include "support/processes/process_exit.h"
#include "support/try.h"

namespace kernwright {

BackgroundQueue::~BackgroundQueue() {
  end();
  for (Thread& thread : threads_) thread.join();
}

void BackgroundQueue::end() {
  const MutexLock lock(mutex_);
  stop_ = true;
  waiting_.clear();
  changed_.notify_all();
}

Result<void> BackgroundQueue::ask(const Problem& normalized) {
  const MutexLock lock(mutex_);
  if (stop_ || exiting() || left_seconds_ <= 0 || asked_.contains(normalized.text())) return {};
  if (busy_ + waiting_.size() >= threads_.size() && threads_.size() < most_threads_) {
    Result<Thread> thread = Thread::start([this] { run(); });
    if (!thread && threads_.empty()) return thread.error();
    if (thread) threads_.push_back(*std::move(thread));
  }
  asked_.insert(normalized.text());
  waiting_.push_back(normalized);
  changed_.notify_all();
  return {};
}

void BackgroundQueue::wait() {
  const MutexLock lock(mutex_);
  while (!waiting_.empty() || busy_ > 0) changed_.wait(mutex_);
}

void BackgroundQueue::run() {
  const MutexLock lock(mutex_);
  for (;;) {
    while (!stop_ && waiting_.empty()) changed_.wait(mutex_);
    if (stop_) return;
    const Problem problem = std::move(waiting_.front());
    waiting_.pop_front();
    ++busy_;
    mutex_.unlock();
    const double used = work_(problem, stop_);
    mutex_.lock();
    --busy_;
    left_seconds_ -= used;
    if (left_seconds_ <= 0 || exiting()) waiting_.clear();
    changed_.notify_all();
  }
}

}  // namespace kernwright
