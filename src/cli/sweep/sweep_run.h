#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cli/page.h"
#include "service/serve/core.h"
#include "service/sweep/sweep_problem.h"

namespace kernwright::cli {

/// Runs a sweep: distributes its problems over tuners, one for each GPU. Each tunes one at a time.
class SweepRun {
 public:
  /// Tunes one problem. Called by one thread at a time.
  using Tuner = std::function<SweepResult(const Problem&)>;

  /// `normalized` and `tuners` are not empty. With `json` no lines are printed.
  SweepRun(std::vector<Problem> normalized, std::vector<Tuner> tuners, Page page, bool json)
      : problems_(std::move(normalized)),
        tuners_(std::move(tuners)),
        page_(page),
        json_(json),
        results_(problems_.size()) {}

  /// The results, in the order of the problems.
  std::vector<SweepResult> run();

 private:
  void work(const Tuner& tuner);
  void print_progress(const Problem& problem, const SweepResult& result, double seconds);

  std::vector<Problem> problems_;
  std::vector<Tuner> tuners_;
  Page page_;
  bool json_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
  std::size_t made_ = 0;     ///< finished problems that were not in the cache
  double made_seconds_ = 0;  ///< the time that these took
  std::vector<SweepResult> results_;
};

}  // namespace kernwright::cli
