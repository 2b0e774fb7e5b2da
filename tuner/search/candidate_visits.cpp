#include "tuner/search/candidate_visits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "support/random.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/search/code_identity.h"
#include "tuner/search/compiled_trial.h"

namespace kernwright {
namespace {

/// The first sample of a candidate this many times slower than the best ends its visit.
constexpr double kHopeless = 2;
/// A candidate that became this much faster than it was is checked again.
constexpr double kTooFast = 0.9;
constexpr std::size_t kToppedUp = 8;    ///< the best so far, which fill idle time
constexpr std::size_t kTopUpOrder = 3;  ///< candidates per call, so that no compile waits for long
/// Spilling code is rarely the best: it is skipped if this many candidates without spills are
/// faster than the model expects the spilling one to be.
constexpr std::ptrdiff_t kSpillFree = 64;
constexpr double kSpillPenaltyBytes = 64;

}  // namespace

bool CandidateVisits::spills_too_much(const Trial& trial) const {
  const int spilled = trial.resources.spill_bytes();
  if (spilled == 0) return false;
  const double expected_us = trial.predicted_us * (1 + spilled / kSpillPenaltyBytes);
  return std::count_if(survivors_.begin(), survivors_.end(), [&](const Survivor& survivor) {
           return survivor.score_us < expected_us && survivor.traits.resources.spill_bytes() == 0;
         }) >= kSpillFree;
}

Result<void> CandidateVisits::visit(CompileQueue::Ready ready) {
  const std::size_t index = ready.candidate;
  const Candidate& candidate = input_.candidates[index];
  if (!ready.kernel && ready.kernel.error().code == ErrorCode::unavailable) {
    return ready.kernel.error();
  }
  Trial trial =
      compiled_trial(candidate, input_.space.predicted_us[index], ready.kernel, input_.profile);
  if (trial.outcome == Outcome::ok && spills_too_much(trial)) {
    trial.outcome = Outcome::spilled;
    trial.detail = concat("spills ", trial.resources.spill_bytes(), " bytes; ", kSpillFree,
                          " candidates that do not are faster than it may be");
  }
  if (trial.outcome != Outcome::ok) return book_.add(index, std::move(trial), {});
  return measure(index, std::move(trial), {std::move(ready.digest), *std::move(ready.kernel)});
}

Result<void> CandidateVisits::measure(std::size_t index, Trial trial, CompiledCandidate compiled) {
  const Candidate& candidate = input_.candidates[index];
  const CompiledKernel& kernel = *compiled.kernel;
  const Digest identity = code_identity(candidate, kernel);
  if (const auto known = measured_code_.find(identity);
      known != measured_code_.end() && !kernel.bits.empty()) {
    const Trial& same = book_.trials()[known->second.trial];
    trial.outcome = same.outcome;
    trial.detail = concat("the same code as ", same.choice.id());
    trial.check = same.check;
    trial.measurement = same.measurement;
    return book_.add(index, std::move(trial), known->second.samples_us);
  }

  const double hopeless_us = survivors_.empty() ? std::numeric_limits<double>::infinity()
                                                : kHopeless * survivors_[0].score_us;
  KW_ASSIGN(Screening::Visit visit, clock_.timed(shares_.measure_seconds, [&] {
    auto visited = screening_.visit(candidate, kernel, hopeless_us);
    if (visited && visited->step.outcome != Outcome::ok && visited->id >= 0) {
      input_.runner.drop(visited->id);
    }
    return visited;
  }));
  trial.check = visit.check;
  Survivor survivor;
  survivor.candidate = index;
  survivor.trial = book_.trials().size();
  survivor.choice = trial.choice;
  survivor.traits = traits_of(candidate, kernel);
  survivor.traits.is_default = index == input_.space.default_index;
  survivor.traits.is_predicted = index == predicted_;
  survivor.traits.is_incumbent = index == incumbent_;
  survivor.traits.deterministic = visit.check.deterministic;
  survivor.compiled = std::move(compiled);
  survivor.id = visit.id;
  if (visit.step.outcome != Outcome::ok) {
    trial.outcome = visit.step.outcome;
    trial.detail = visit.step.detail;
  } else {
    for (const double us : visit.samples_us) {
      survivor.samples_us.push_back(us * std::exp(-visit.drift));
    }
    trial.measurement.samples_us = std::move(visit.samples_us);
  }
  measured_code_[identity] = {survivor.trial, survivor.samples_us};
  const bool passed = trial.outcome == Outcome::ok;
  KW_TRY(book_.add(index, std::move(trial), survivor.samples_us));
  if (passed) survivors_.insert(std::move(survivor));
  return {};
}

Result<void> CandidateVisits::fill_idle_time() {
  return clock_.timed(shares_.filler_seconds, [this] { return sample_again(); });
}

Result<void> CandidateVisits::sample_again() {
  std::vector<std::size_t> chosen;
  const std::size_t best = std::min(kToppedUp, survivors_.size());
  for (std::size_t i = 0; i < std::min(kTopUpOrder, best); ++i) {
    const Survivor& one = survivors_[hash_at(random_seed_, drawn_++) % best];
    if (one.id >= 0) chosen.push_back(one.candidate);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<Survivor> again;
  std::vector<Runner::Id> ids;
  for (const std::size_t candidate : chosen) {
    again.push_back(survivors_.take(candidate));
    ids.push_back(again.back().id);
  }
  KW_ASSIGN(auto sampled, screening_.top_up(ids));
  for (std::size_t i = 0; i < again.size(); ++i) {
    KW_TRY(add_sample(again[i], sampled[i]));
    if (book_.trials()[again[i].trial].outcome == Outcome::ok) {
      survivors_.insert(std::move(again[i]));
    }
  }
  return {};
}

Result<void> CandidateVisits::add_sample(Survivor& survivor, const Runner::Sampled& sampled) {
  Runner::Step step = sampled.step;
  if (step.outcome == Outcome::ok) {
    const double us = sampled.sample.us * std::exp(-screening_.drift());
    if (us < kTooFast * survivor.score_us) {
      KW_ASSIGN(auto checked, input_.runner.check(survivor.id, Runner::CheckDepth::screening));
      step = checked.step;
    }
    survivor.samples_us.push_back(us);
  }
  if (step.outcome == Outcome::ok) return {};
  survivors_.unload(survivor);
  return book_.fail(survivor.trial, step, "measured again: ");
}

}  // namespace kernwright
