#include "service/answer/shortlists.h"

#include <algorithm>
#include <utility>

#include "compile/launch_fit.h"
#include "support/processes/process_exit.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// How much slower than the best a kernel may be predicted that is taken because its bits are at
/// hand.
constexpr double kWorthAWait = 0.1;

/// Returns a key of the bits of a candidate within its family.
std::string bits_key(const Candidate& candidate) {
  std::string key = candidate.id();
  for (const std::string& dim : candidate.kernel_template->constant_dims) {
    key += concat(' ', dim, '=', *candidate.scope.find(dim));
  }
  return key;
}

}  // namespace

std::shared_ptr<Shortlists::Entry> Shortlists::entry(const BoundProblem& problem) const {
  const std::string family = family_of(problem);
  const MutexLock lock(mutex_);
  const auto found = entries_.find(family);
  return found == entries_.end() ? nullptr : found->second;
}

bool Shortlists::knows(const BoundProblem& problem) const { return entry(problem) != nullptr; }

std::optional<Result<Artifact>> Shortlists::at_hand(Entry& entry, const Candidate& candidate) {
  const MutexLock lock(entry.mutex);
  const auto found = entry.artifacts.find(bits_key(candidate));
  if (found == entry.artifacts.end()) return std::nullopt;
  return found->second;
}

Result<Artifact> Shortlists::build(Entry& entry, const Candidate& candidate) {
  if (std::optional<Result<Artifact>> kept = at_hand(entry, candidate)) return *std::move(kept);
  Result<Artifact> built = builder_.build(candidate);
  if (built) {
    const TrialStep step = check_compiled(candidate, built->kernel, site_.profile);
    if (step.outcome != Outcome::ok) built = Error{ErrorCode::compile, step.detail};
  } else if (built.error().code != ErrorCode::compile) {
    return built;  // which may be otherwise next time
  }
  const MutexLock lock(entry.mutex);
  return entry.artifacts.insert_or_assign(bits_key(candidate), std::move(built)).first->second;
}

std::optional<Shortlists::Answer> Shortlists::find(const BoundProblem& problem,
                                                   const Decisions& decisions, bool may_compile) {
  const std::shared_ptr<Entry> of = entry(problem);
  if (!of) return std::nullopt;
  std::vector<Shortlisted> ranked =
      rank_shortlist(of->choices, *site_.catalog, problem, site_.profile);
  std::erase_if(ranked, [&](const Shortlisted& one) {
    if (decisions.banned(one.candidate.id())) return true;
    const std::optional<Result<Artifact>> kept = at_hand(*of, one.candidate);
    return kept && !*kept;
  });
  if (ranked.empty()) return std::nullopt;
  const double enough_us = (1 + kWorthAWait) * ranked.front().predicted_us;
  const auto ready = std::ranges::find_if(ranked, [&](const Shortlisted& one) {
    return (!may_compile || one.predicted_us <= enough_us) && at_hand(*of, one.candidate);
  });
  Shortlisted& taken = ready == ranked.end() ? ranked.front() : *ready;
  Result<Artifact> artifact = build(*of, taken.candidate);
  if (!artifact) return std::nullopt;  // the next size passes it over
  RecordHead head{.key = site_.key(problem),
                  .environment = answers_.environment(),
                  .grade = RecordGrade::predicted,
                  .winner = {.choice = taken.candidate.choice(),
                             .artifact = artifact->digest,
                             .predicted_us = taken.predicted_us},
                  .roofline_us = roofline_us(problem, site_.profile),
                  .created = utc_now(),
                  .artifacts = {}};
  head.environment.template_digest = answers_.template_digest(head.winner.choice.kernel_template);
  return Answer{{std::move(taken.candidate), *std::move(artifact)}, std::move(head)};
}

void Shortlists::make(const BoundProblem& problem, const Load& load,
                      const std::atomic<bool>& stop) {
  const auto stopped = [&] { return stop || exiting(); };
  std::shared_ptr<Entry> made = entry(problem);
  if (!made) {
    const BeforeExit ranks;
    if (!ranks) return;
    made = std::make_shared<Entry>();
    Result<Shortlist> choices = make_shortlist(*site_.catalog, problem, site_.profile, stopped);
    if (!choices && stopped()) return;
    if (choices) made->choices = *std::move(choices);
    const MutexLock lock(mutex_);
    entries_.emplace(family_of(problem), made);
  }
  for (const ListedChoice& listed : made->choices) {
    for (Shortlisted& one :
         rank_shortlist({listed}, *site_.catalog, listed.example, site_.profile)) {
      if (stopped() || builder_.seal().refuses()) return;
      Result<Artifact> built = build(*made, one.candidate);
      if (!built) {
        site_.say(LogLevel::info, concat(one.candidate.id(), " is not on the shortlist for ",
                                         listed.example.text(), ": ", built.error().message));
        continue;
      }
      std::shared_ptr<const void> loaded = load({std::move(one.candidate), *std::move(built)});
      const MutexLock lock(made->mutex);
      made->loaded.push_back(std::move(loaded));
    }
  }
}

}  // namespace kernwright
