#include "tuner/session/predict_record.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "compile/render.h"
#include "support/try.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/search/compiled_trial.h"
#include "tuner/search/record_parts.h"
#include "tuner/session/compile_ahead.h"

namespace kernwright {
namespace {

constexpr std::size_t kMostRunnersUp = 7;

/// Moves a candidate to the front whose bits are kept, if it is predicted as fast as the first one
/// within the model's doubt. Families of products share bits, so that spares most compiles of a
/// model. Looks at few, because the digest of each is computed.
void prefer_kept(std::vector<std::size_t>& order, const CandidateList& list,
                 const TuningInput& input) {
  constexpr std::ptrdiff_t kMostAsked = 24;
  if (order.empty()) return;
  const double enough_us = (1 + kModelDoubt) * list.predicted_us[order.front()];
  const auto last = order.begin() + std::min(std::ssize(order), kMostAsked);
  const auto kept = std::find_if(order.begin(), last, [&](std::size_t i) {
    if (list.predicted_us[i] > enough_us) return false;
    const auto digest =
        input.pool.digest(render(list.candidates[i], input.catalog, input.profile.sm_arch));
    return digest && input.pool.keeps(*digest);
  });
  if (kept != last) std::rotate(order.begin(), kept, kept + 1);
}

}  // namespace

Result<TuningResult> predict_record(const TuningInput& input, const TuningBudget& budget,
                                    const std::map<std::string, Override>& banned) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  KW_ASSIGN(const CandidateList candidates,
            enumerate_candidates(input.catalog, input.problem, input.profile));
  CompileAhead ahead(candidates.candidates, input.catalog, input.profile.sm_arch, input.pool);

  struct Usable {
    std::size_t trial;
    bool is_default;
    CompileAhead::Ready ready;
  };
  TuningResult result;
  result.shares.setup_seconds = elapsed();
  std::vector<Usable> usable;
  std::vector<std::size_t> order = best_of_each_group(
      candidates, [&](const Candidate& one) { return banned.contains(one.id()); });
  const auto count = static_cast<std::size_t>(std::max(budget.trials, 1));
  if (count == 1) prefer_kept(order, candidates, input);
  const auto threads = static_cast<std::size_t>(input.pool.threads());
  std::size_t started = 0;
  for (std::size_t taken = 0; taken < order.size(); ++taken) {
    if (taken >= count && !usable.empty()) break;
    const bool late = elapsed() >= budget.seconds && !usable.empty();
    const std::size_t ahead_until = late ? started : std::min(taken + threads, order.size());
    // Beyond the first only what is needed: one that compiles.
    while (started < ahead_until && (started < count || started == taken)) {
      ahead.start(order[started++]);
    }
    if (taken == started) break;
    CompileAhead::Ready ready = ahead.wait_for(order[taken]);
    if (!ready.kernel && ready.kernel.error().code == ErrorCode::unavailable) {
      return ready.kernel.error();
    }
    const Candidate& candidate = candidates.candidates[order[taken]];
    Trial trial = compiled_trial(candidate, candidates.predicted_us[order[taken]], ready.kernel,
                                 input.profile);
    if (trial.outcome == Outcome::ok) {
      usable.push_back(
          {result.trials.size(), order[taken] == candidates.default_index, std::move(ready)});
    }
    result.trials.push_back(std::move(trial));
    if (result.trials.size() == std::min(count, order.size()) && usable.empty() &&
        input.problem.takes_function()) {
      // A function that does not compile does so nowhere.
      const CompileResult reference =
          input.pool.submit(render_reference(input.problem, input.catalog, input.profile.sm_arch))
              .get();
      if (!reference) return reference.error();
    }
  }
  if (usable.empty()) return none_passed(input.problem.text(), result.trials);
  // Returns the compiler's warnings that cost speed and that the model does not know of.
  std::sort(usable.begin(), usable.end(), [](const Usable& a, const Usable& b) {
    const auto rank = [](const Usable& u) {
      return std::pair(!u.ready.kernel.value()->warnings.empty(), u.trial);
    };
    return rank(a) < rank(b);
  });

  TuningRecord& record = result.record;
  record.grade = RecordGrade::predicted;
  for (std::size_t i = 0; i < std::min(usable.size(), 1 + kMostRunnersUp); ++i) {
    const CompileAhead::Ready& ready = usable[i].ready;
    RankedConfiguration ranked = ranked_configuration(result.trials[usable[i].trial], ready.digest);
    ranked.traits.is_default = usable[i].is_default;
    if (i == 0) {
      record.winner = std::move(ranked);
      result.kernel = *ready.kernel;
    } else {
      record.runners_up.push_back(std::move(ranked));
    }
  }
  std::stable_sort(record.runners_up.begin(), record.runners_up.end(),
                   [](const RankedConfiguration& a, const RankedConfiguration& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  record.candidates = static_cast<int>(candidates.candidates.size());
  complete(record, input);
  record.wall_seconds = elapsed();
  result.rejected = candidates.rejected;
  result.notes.insert(result.notes.end(), candidates.notes.begin(), candidates.notes.end());
  result.shares.wall_seconds = record.wall_seconds;
  result.shares.compile_seconds = ahead.compile_seconds();
  result.shares.compile_threads = input.pool.threads();
  return result;
}

}  // namespace kernwright
