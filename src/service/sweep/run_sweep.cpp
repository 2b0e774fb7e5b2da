#include "service/sweep/run_sweep.h"

#include <atomic>
#include <chrono>

#include "support/mutex.h"
#include "support/processes/threads.h"
#include "support/steady_seconds.h"
#include "support/text.h"

namespace kernwright {

std::vector<SweepResult> run_sweep(
    std::span<const Problem> normalized, std::span<const SweepTuner> tuners,
    const std::function<void(std::size_t, const SweepResult&, double seconds)>& done,
    const std::function<void(std::string_view)>& say) {
  std::vector<SweepResult> results(normalized.size());
  std::atomic<std::size_t> next = 0;
  Mutex mutex;  // held while `done` is called
  const auto work = [&](const SweepTuner& tuner) {
    for (std::size_t i = next++; i < normalized.size(); i = next++) {
      const auto start = std::chrono::steady_clock::now();
      results[i] = tuner(normalized[i], normalized.subspan(i + 1));
      const MutexLock lock(mutex);
      done(i, results[i], seconds_since(start));
    }
  };
  {
    std::vector<Thread> threads;
    for (const SweepTuner& tuner : tuners.subspan(1)) {
      Result<Thread> thread = Thread::start([&] { work(tuner); });
      if (thread) {
        threads.push_back(*std::move(thread));
      } else {
        say(concat("one GPU less is tuned on: ", thread.error().message));
      }
    }
    work(tuners.front());
  }
  return results;
}

}  // namespace kernwright
