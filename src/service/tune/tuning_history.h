#pragma once

#include <utility>

#include "cache/layers/tiered_cache.h"
#include "cache/stores/failure_store.h"
#include "model/operation/bound_problem.h"
#include "tuner/search/search.h"
#include <kernwright/result.h>

namespace kernwright {

/// The cache's knowledge of earlier tunings that concerns one problem. Failures of this tuning are
/// added to it.
class TuningHistory {
 public:
  /// `key` is the problem's, `now` today's environment. `cache` outlives this.
  TuningHistory(const TieredCache& cache, RecordKey key, RecordEnvironment now,
                TieredCache::TemplateDigest template_digest)
      : cache_(cache),
        key_(std::move(key)),
        now_(std::move(now)),
        template_digest_(std::move(template_digest)) {}

  /// Returns the incumbent, warm starts, and the candidates that must not run. The warm starts are
  /// the runners-up of a record that was made in another environment, which are measured again this
  /// way, and the winners of neighbours. `known` is the result of a lookup of the problem.
  EarlierTunings of(const BoundProblem& problem, const Answers& known) const;

  /// Keeps a trial that failed, if its outcome lasts. Errors: `io`.
  Result<void> keep(const Trial& failed) const;

 private:
  FailureScope scope(std::string template_digest) const;

  const TieredCache& cache_;
  RecordKey key_;
  RecordEnvironment now_;
  TieredCache::TemplateDigest template_digest_;
};

}  // namespace kernwright
