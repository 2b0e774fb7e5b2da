#include "cli/sweep_run.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "service/sweep_state.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

std::string duration(double seconds) {
  char text[48];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

}  // namespace

SweepRun::SweepRun(std::vector<std::shared_ptr<ServiceCore>> services,
                   std::vector<Problem> normalized, Options options)
    : services_(std::move(services)),
      problems_(std::move(normalized)),
      options_(options),
      results_(problems_.size()) {}

std::vector<SweepResult> SweepRun::run() {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < services_.size(); ++i) {
    threads.emplace_back([this, i] { work(*services_[i]); });
  }
  work(*services_.front());
  for (std::thread& thread : threads) thread.join();
  return std::move(results_);
}

void SweepRun::work(ServiceCore& service) {
  for (;;) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == problems_.size()) return;
      index = next_++;
    }
    const auto start = std::chrono::steady_clock::now();
    SweepResult result = sweep_one(service, problems_[index]);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    print_progress(result, seconds);
    results_[index] = std::move(result);
  }
}

SweepResult SweepRun::sweep_one(ServiceCore& service, const Problem& problem) const {
  SweepResult result;
  result.problem = problem;
  const Result<ServiceCore::Named> named = service.name(problem);
  if (!named) {
    result.error = named.error().message;
    return result;
  }
  const RecordGrade wanted = service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
  MissReason reason = MissReason::none;
  const std::vector<GradedRecord> known = service.records(named->problem, reason);
  const SweepState state = sweep_state(known, wanted, options_.recheck);
  if (state.settled != nullptr) {
    Lookup<TuningRecord> record = read_record(state.settled->file);
    if (record) {
      result.record = std::move(record.value);
      result.note = "already in the cache";
    }
  }
  if (!result.record) {
    TuningOptions options;
    options.budget.seconds = options_.seconds;
    // Lines of several devices would overwrite each other.
    const bool quiet = options_.json || services_.size() > 1;
    Result<TuningResult> tuned = tune_or_predict(service, problem, std::move(options), quiet);
    if (!tuned) {
      result.error = tuned.error().message;
      return result;
    }
    result.record = std::move(tuned->record);
    result.tuned_again = state.provisional;
    if (state.provisional) result.note = "tuned again: the record had trust C";
  }
  result.row = report_row(*result.record, *named->operation, service.profile());
  return result;
}

void SweepRun::print_progress(const SweepResult& result, double seconds) {
  ++done_;
  if (result.note != "already in the cache") {
    ++made_;
    made_seconds_ += seconds;
  }
  if (!result.record) {
    report({ErrorCode::internal, concat(result.problem.text(), ": ", result.error)});
  } else if (!options_.json) {
    print(concat(winner_line(*result.record),
                 result.note.empty() ? "" : concat("  (", result.note, ")")));
  }
  const std::size_t left = problems_.size() - done_;
  if (options_.json || made_ == 0 || left == 0) return;
  const double each = made_seconds_ / static_cast<double>(made_);
  print(concat("  ", done_, " of ", problems_.size(), " done, at most about ",
               duration(each * static_cast<double>(left) / static_cast<double>(services_.size())),
               " left"));
}

}  // namespace kernwright::cli
