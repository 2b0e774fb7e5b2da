#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "cache/records/record.h"
#include "service/answer/answer_finder.h"
#include "service/answer/builder.h"
#include "service/answer/site.h"
#include "service/tune/measuring.h"
#include <kernwright/result.h>

namespace kernwright {

/// A record with the counters that were added to it.
struct Profiled {
  TuningRecord record;
  std::vector<std::string> notes;  ///< what was not counted, and why
  int counted = 0;                 ///< candidates
  /// Seconds of counting them. The first problem's include the start of CUPTI, but not the start of
  /// a worker.
  double seconds = 0;
};

/// A record of the cache and its file.
struct StoredRecord {
  TuningRecord record;
  std::string file;
};
/// Returns the best record of the problem that has a file. Errors: `not_found` if there is none;
/// `corrupt`.
Result<StoredRecord> find_record(const AnswerFinder& answers, const BoundProblem& problem);

/// Returns the candidates of a record that are profiled: its winner, the default if it is another,
/// and the best `more` of the others, each once.
std::vector<const RankedConfiguration*> profiled_candidates(const TuningRecord& record, int more);

/// Puts the set into the record, in place of one of the same candidate, source and cache state.
void add_counters(TuningRecord& record, CounterSet set);

/// Adds hardware counters to records. The candidates that it counts run in a process of its own,
/// which times nothing: a process that has loaded CUPTI must not measure. It holds the lock of the
/// GPU while it counts. Used by one thread.
class Profiler {
 public:
  using Open = std::function<Result<std::unique_ptr<Measuring>>(MeasuringContext)>;
  /// The references outlive it. `open` starts the process that counts.
  Profiler(const Site& site, Builder& builder, const AnswerFinder& answers,
           std::vector<std::filesystem::path> template_dirs, Open open = in_worker);

  /// Counts each of `profiled_candidates` with a cold and with a warm L2, and keeps the record.
  /// Nothing in it but `counters` changes. Errors: from `find_record`; `unavailable` without a GPU,
  /// or if the profiler cannot count, with the remedy; the failure of the winner.
  Result<Profiled> profile(const BoundProblem& problem, int more);

 private:
  static Result<std::unique_ptr<Measuring>> in_worker(MeasuringContext context);
  Result<Measuring*> counting();
  Result<std::shared_ptr<const CompiledKernel>> bits_of(const Candidate& candidate,
                                                        const RankedConfiguration& ranked);
  Result<void> count(Runner& runner, const BoundProblem& problem, const RankedConfiguration& ranked,
                     TuningRecord& record);
  /// Keeps a record in place of the file that it was read from. Errors: `io`.
  Result<void> keep(const StoredRecord& stored) const;

  const Site& site_;
  Builder& builder_;
  const AnswerFinder& answers_;
  std::vector<std::filesystem::path> template_dirs_;
  Open open_;
  std::unique_ptr<Measuring> counting_;  ///< from the first problem on
};

}  // namespace kernwright
