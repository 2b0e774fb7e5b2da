#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "service/answer/answer_finder.h"
#include "service/answer/builder.h"
#include "service/answer/site.h"
#include "service/tune/measuring.h"
#include "support/mutex.h"
#include "support/processes/threads.h"
#include "tuner/measure/unfused_comparison.h"
#include "tuner/search/search.h"
#include "tuner/session/family_session.h"
#include "tuner/session/gpu_lock.h"
#include "tuner/session/tuning_input.h"
#include "tuner/session/tuning_session.h"
#include <kernwright/result.h>

namespace kernwright {

/// A record of a family that was made.
struct TunedFamily {
  FamilyRecord record;
  std::filesystem::path file = {};
  std::string unstored = {};  ///< why other processes will not find it; empty: they will
};

/// Makes records, by measuring or by prediction, and puts them into the cache. Its results have the
/// winner's bits. One measurement runs at a time, and holds the lock of the GPU. Thread-safe.
class TuningDesk {
 public:
  struct Options {
    std::vector<std::filesystem::path> template_dirs = {};
    int device = 0;
    bool in_process = false;            ///< candidates run in this process
    std::filesystem::path worker = {};  ///< see `measure_in_worker`
    OpenDevice open_device;
    MakeDataOps make_data_ops;
  };
  /// The references outlive it.
  TuningDesk(const Site& site, Builder& builder, const AnswerFinder& answers, Options options);

  /// Searches for the fastest candidate. Failures are kept even if the session ends in an error.
  ///
  /// If the options have no `trial_log`, it goes beside the cache's records. If `stop` becomes
  /// true, the search ends soon with its worker, nothing of it is kept, and the error is
  /// `unavailable`. Errors also: from the builder's seal.
  Result<TuningResult> tune(const BoundProblem& problem, TuningOptions options,
                            const std::atomic<bool>* stop = nullptr);

  /// Tunes a range of sizes, and single ones of it, whose records are kept too. Otherwise as
  /// `tune`.
  Result<TunedFamily> tune_family(const RangedProblem& family, FamilyOptions options,
                                  const std::atomic<bool>* stop = nullptr);

  /// Starts to compile what the next tunings begin with, and returns: for all the problems the
  /// kernels that a runner asks for when it opens, for the first also its first choices. Meant for
  /// the time in which another problem is in its finals, and compiles nothing. Requests from before
  /// that were not started are dropped, unless they are asked for again. May be called while `tune`
  /// runs.
  void compile_ahead(std::vector<BoundProblem> next);

  /// Ranks by the cost model, and compiles the first `budget.trials` in at most `budget.seconds`
  /// (see `predict_record`). Errors also: from the builder's seal.
  Result<TuningResult> predict(const BoundProblem& problem, const TuningBudget& budget);

  /// Compares a fused kernel with its problem's unfused form, in this process. Errors: from
  /// `kernwright::compare_unfused`; `unavailable` if the GPU cannot be had.
  Result<UnfusedComparison> compare_unfused(const UnfusedMatch& match, std::uint64_t seed);

 private:
  /// Errors: `unavailable` without a GPU; from the builder's seal.
  Result<void> may_tune(const std::string& problem) const;
  /// Waits for the lock of the GPU.
  Result<GpuLock> lock_gpu() const;
  /// Errors: `unavailable` if the tuning was to end. Its worker is replaced.
  Result<void> check_stopped() KW_REQUIRES(mutex_);
  /// Errors: `invalid_argument` if the policy cannot be measured; `unavailable` without a toolkit.
  Result<TuningInput> input(const BoundProblem& problem) const;
  Result<Measuring*> measuring() KW_REQUIRES(mutex_);
  Result<std::unique_ptr<Runner>> open(const BoundProblem& problem, std::uint64_t seed)
      KW_REQUIRES(mutex_);
  /// Has the pool compile what a runner of the problem asks for when it opens.
  std::vector<Build> compile_opening(const BoundProblem& problem);
  /// Runs the session, with the lock of the GPU.
  Result<TuningResult> search(const TuningInput& subject, TuningOptions options)
      KW_REQUIRES(mutex_);
  /// Returns true if the tuning that runs is to end.
  bool stopped() const;
  /// Puts the record into the cache, or says in the result and the log why it is not there.
  void store(TuningResult& result) const;

  const Site& site_;
  Builder& builder_;
  const AnswerFinder& answers_;
  const Options options_;
  Mutex mutex_;                              ///< held while something measures
  const std::atomic<bool>* stop_ = nullptr;  ///< the running tuning's; null if it has none
  std::unique_ptr<Measuring> measuring_ KW_GUARDED_BY(mutex_);  ///< opened by the first tuning

  /// The compiles that run ahead for the next tunings.
  struct Ahead {
    std::vector<BoundProblem> problems;
    std::vector<std::vector<Build>> of_opening;
    std::optional<TuningSession> first;
  };
  Mutex ahead_mutex_;
  std::unique_ptr<Ahead> ahead_ KW_GUARDED_BY(ahead_mutex_);
};

}  // namespace kernwright
