#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/page.h"
#include "cli/progress.h"
#include "service/serve/core.h"
#include "service/sweep/sweep_problem.h"
#include "support/mutex.h"

namespace kernwright::cli {

/// Runs a sweep: distributes its problems over tuners, one for each GPU. Each tunes one at a time.
class SweepRun {
 public:
  /// Tunes one problem, and reports the search to its watch if it can. `later` are the problems
  /// that come behind it. Called by one thread at a time.
  using Tuner =
      std::function<SweepResult(const Problem&, std::span<const Problem> later, SearchWatch&)>;

  /// `tuners` is not empty. Prints a row for each problem when it is done, unless `json`.
  SweepRun(const ServiceCore& service, std::vector<Problem> normalized, std::vector<Tuner> tuners,
           Page page, bool json)
      : service_(service),
        problems_(std::move(normalized)),
        tuners_(std::move(tuners)),
        page_(page),
        json_(json),
        results_(problems_.size()) {}

  /// Returns the results, in the order of the problems.
  std::vector<SweepResult> run();

 private:
  void work(const Tuner& tuner);
  void print_row(const Problem& asked, const SweepResult& result) KW_REQUIRES(mutex_);
  /// Returns "3 of 12 done, about 4 min left".
  std::string line() const;

  const ServiceCore& service_;
  std::vector<Problem> problems_;
  std::vector<Tuner> tuners_;
  Page page_;
  bool json_;
  mutable Mutex mutex_;
  std::size_t next_ KW_GUARDED_BY(mutex_) = 0;
  std::size_t done_ KW_GUARDED_BY(mutex_) = 0;
  std::size_t made_ KW_GUARDED_BY(mutex_) = 0;     ///< finished problems that were not in the cache
  double made_seconds_ KW_GUARDED_BY(mutex_) = 0;  ///< the time that these took
  std::vector<SweepResult> results_ KW_GUARDED_BY(mutex_);
  SearchWatch watch_;  ///< of the search here, if there is one tuner
  std::optional<Ticker> ticker_;
};

}  // namespace kernwright::cli
