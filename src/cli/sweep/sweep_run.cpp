#include "cli/sweep/sweep_run.h"

#include <chrono>
#include <utility>

#include "cli/output.h"
#include "cli/record_text.h"
#include "support/processes/threads.h"
#include "support/text.h"

namespace kernwright::cli {

std::vector<SweepResult> SweepRun::run() {
  {
    std::vector<Thread> threads;
    for (std::size_t i = 1; i < tuners_.size(); ++i) {
      Result<Thread> thread = Thread::start([this, i] { work(tuners_[i]); });
      if (!thread) {
        report_warning(concat("one GPU less is tuned on: ", thread.error().message));
        continue;
      }
      threads.push_back(*std::move(thread));
    }
    work(tuners_.front());
  }
  return std::move(results_);
}

void SweepRun::work(const Tuner& tuner) {
  for (;;) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == problems_.size()) return;
      index = next_++;
    }
    const auto start = std::chrono::steady_clock::now();
    SweepResult result = tuner(problems_[index]);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    print_progress(problems_[index], result, seconds);
    results_[index] = std::move(result);
  }
}

void SweepRun::print_progress(const Problem& problem, const SweepResult& result, double seconds) {
  ++done_;
  if (!result.found) {
    ++made_;
    made_seconds_ += seconds;
  }
  if (!result.record) {
    report({ErrorCode::internal, concat(problem.text(), ": ", result.error)});
  } else if (!json_) {
    print_winner(page_, *result.record,
                 result.found         ? "already in the cache"
                 : result.tuned_again ? "tuned again: the record had trust C"
                                      : "");
  }
  const std::size_t left = problems_.size() - done_;
  if (json_ || made_ == 0 || left == 0) return;
  const double each = made_seconds_ / static_cast<double>(made_);
  print(concat(
      "  ", done_, " of ", problems_.size(), " done, at most about ",
      format_duration(each * static_cast<double>(left) / static_cast<double>(tuners_.size())),
      " left"));
}

}  // namespace kernwright::cli
