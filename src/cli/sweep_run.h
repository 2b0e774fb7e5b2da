#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "service/core.h"
#include "service/sweep_report.h"

namespace kernwright::cli {

/// How one problem of a sweep ended.
struct SweepResult {
  Problem problem;  ///< normalised
  std::optional<TuningRecord> record;
  ReportRow row;      ///< of the record
  std::string note;   ///< "already in the cache", ...
  std::string error;  ///< where there is no record
  bool tuned_again = false;
};

/// The problems of a sweep, shared out among services, one per GPU, each tuning one at a time.
class SweepRun {
 public:
  struct Options {
    double seconds = 30;   ///< per problem
    bool recheck = false;  ///< what another environment measured is due
    bool json = false;     ///< print no lines
  };

  SweepRun(std::vector<std::shared_ptr<ServiceCore>> services, std::vector<Problem> normalized,
           Options options);

  /// In the order of the problems.
  std::vector<SweepResult> run();

 private:
  void work(ServiceCore& service);
  SweepResult sweep_one(ServiceCore& service, const Problem& problem) const;
  void print_progress(const SweepResult& result, double seconds);

  std::vector<std::shared_ptr<ServiceCore>> services_;
  std::vector<Problem> problems_;
  Options options_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
  std::size_t made_ = 0;     ///< of these, not found in the cache
  double made_seconds_ = 0;  ///< that these took
  std::vector<SweepResult> results_;
};

}  // namespace kernwright::cli
