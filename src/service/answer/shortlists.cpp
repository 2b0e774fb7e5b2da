#include "service/answer/shortlists.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <utility>

#include "cache/stores/record_store.h"
#include "compile/launch_fit.h"
#include "support/names.h"
#include "support/processes/process_exit.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/utc.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// The measured kernels that a family loads.
constexpr std::size_t kMostMeasured = 32;
/// How much slower than the best a kernel may be predicted that is taken because its bits are at
/// hand.
constexpr double kWorthAWait = 0.1;

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
      rank_shortlist(of->choices.choices, *site_.catalog, problem, site_.profile);
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
  RecordHead head = head_of(taken, artifact->digest);
  return Answer{{std::move(taken.candidate), *std::move(artifact)}, std::move(head)};
}

std::shared_ptr<const Launcher> Shortlists::loaded(const Offer& offer, const Load& load) const {
  {
    const MutexLock lock(mutex_);
    const auto known = launchers_.find(offer.artifact.digest);
    if (known != launchers_.end()) return known->second;
  }
  // The driver may wait for other streams, so lookups must not wait for it.
  std::shared_ptr<const Launcher> launcher = load(offer);
  if (launcher == nullptr) return nullptr;
  const MutexLock lock(mutex_);
  return launchers_.emplace(offer.artifact.digest, std::move(launcher)).first->second;
}

std::size_t Shortlists::add_kernel(Family& family, Offer offer, GradedRecord record,
                                   const Load& load) const {
  std::vector<std::string> free;
  for (const FreeDim& dim : family.free) free.push_back(dim.name);
  SizedPlan plan(offer.candidate, free, site_.profile);
  std::shared_ptr<const Launcher> launcher = loaded(offer, load);
  if (launcher != nullptr) {  // maybe for another family with the same bits
    Result<std::unique_ptr<Launcher>> own =
        launcher->with(std::make_shared<const CompactPlan>(plan.form()));
    launcher = own ? std::shared_ptr<const Launcher>(*std::move(own)) : nullptr;
  }
  family.kernels.push_back(std::make_shared<const Family::Kernel>(Family::Kernel{
      SizeCheck(offer.candidate, free), std::move(plan), std::move(record),
      std::move(offer.artifact), std::move(launcher), site_.profile, site_.catalog}));
  return family.kernels.size() - 1;
}

RecordHead Shortlists::head_of(const Shortlisted& one, std::string artifact) const {
  const BoundProblem& problem = *one.candidate.problem;
  RecordHead head{.key = site_.key(problem),
                  .environment = answers_.environment(),
                  .grade = RecordGrade::predicted,
                  .winner = {.choice = one.candidate.choice(),
                             .artifact = std::move(artifact),
                             .predicted_us = one.predicted_us},
                  .roofline_us = roofline_us(problem, site_.profile),
                  .created = utc_now(),
                  .artifacts = {}};
  head.environment.template_digest = answers_.template_digest(head.winner.choice.kernel_template);
  return head;
}

std::shared_ptr<const Family> Shortlists::make(const BoundProblem& problem, bool predicts,
                                               Match worst, const Load& load,
                                               const std::atomic<bool>& stop) {
  const auto stopped = [&] { return stop || exiting(); };
  auto family = std::make_shared<Family>(Family{.example = problem, .free = free_dims(problem)});
  const bool chooses = !family->free.empty() && family->free.size() <= FreeSizes::kMost;
  for (const FreeDim& dim : family->free) {
    family->distances.push_back(find_named(problem.operation().dims, dim.name)->distance);
  }
  const bool compiles = predicts && !builder_.seal().refuses();
  if (chooses) {
    add_measured(*family, worst, compiles ? AnswerFinder::Bits::built : AnswerFinder::Bits::stored,
                 load);
  }
  const bool is_covered = std::ranges::any_of(
      family->sections,
      [&](const Family::Section& section) { return section.ranges == family->free; });
  std::shared_ptr<Entry> made = entry(problem);
  Result<RankedChoices> ranked = RankedChoices();
  if (!made) {
    const BeforeExit ranks;
    if (!ranks) return nullptr;
    if (predicts && !is_covered) {
      ranked = rank_family(*site_.catalog, problem, site_.profile, stopped);
      if (!ranked && stopped()) return nullptr;
      if (!ranked) ranked = RankedChoices();
    }
    made = make_entry(problem, *ranked, nullptr, stopped);
  }
  if (!made || !chooses) return nullptr;
  while (predicts) {
    const auto measured = static_cast<std::ptrdiff_t>(family->kernels.size());
    const Added added = add_predicted(*family, *made, load, stopped);
    if (added == Added::gave_up) return nullptr;
    if (added == Added::all || ranked->choices.empty()) break;
    // Sizes whose kernel does not compile would have none, so others take its place.
    family->kernels.erase(family->kernels.begin() + measured, family->kernels.end());
    family->sections.pop_back();
    made = make_entry(problem, *ranked, made.get(), stopped);
    if (!made) return nullptr;
  }
  return !family->sections.empty() && add_points(*family, worst, load) ? family : nullptr;
}

std::shared_ptr<Shortlists::Entry> Shortlists::make_entry(const BoundProblem& problem,
                                                          const RankedChoices& ranked,
                                                          Entry* before,
                                                          const std::function<bool()>& stopped) {
  const BeforeExit makes;
  if (!makes) return nullptr;
  auto made = std::make_shared<Entry>();
  if (before != nullptr) {
    const MutexLock lock(before->mutex);
    const MutexLock of_made(made->mutex);
    made->artifacts = before->artifacts;
  }
  const auto compiles = [&](const ListedChoice& listed) {
    for (const Shortlisted& one :
         rank_shortlist({listed}, *site_.catalog, listed.example, site_.profile)) {
      const std::optional<Result<Artifact>> kept = at_hand(*made, one.candidate);
      if (kept && !*kept) return false;
    }
    return true;
  };
  if (!ranked.choices.empty()) {
    Result<Shortlist> choices =
        make_shortlist(ranked, *site_.catalog, problem, site_.profile, stopped, compiles);
    if (!choices) return nullptr;
    made->choices = *std::move(choices);
  }
  const MutexLock lock(mutex_);
  std::shared_ptr<Entry>& kept = entries_[family_of(problem)];
  if (kept.get() == before) kept = std::move(made);  // unless another thread made one meanwhile
  return kept;
}

Shortlists::Added Shortlists::add_predicted(Family& family, Entry& entry, const Load& load,
                                            const std::function<bool()>& stopped) {
  const Shortlist& list = entry.choices;
  if (!list.table) return Added::all;
  Added added = Added::all;
  Family::Section section{.ranges = family.free, .places = {}, .table = *list.table};
  for (std::size_t i = 0; i < family.free.size(); ++i) section.places.push_back(i);
  const auto gives_up = [&] { return stopped() || builder_.seal().refuses(); };
  std::vector<std::vector<Shortlisted>> ranked;
  for (const ListedChoice& listed : list.choices) {
    ranked.push_back(rank_shortlist({listed}, *site_.catalog, listed.example, site_.profile));
  }
  parallel_for(ranked.size(), [&](std::size_t i) {  // all compiles at once
    for (const Shortlisted& one : ranked[i]) {
      if (!gives_up()) static_cast<void>(build(entry, one.candidate));
    }
  });
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const ListedChoice& listed = list.choices[i];
    std::optional<std::size_t>& number = section.listed.emplace_back();
    for (Shortlisted& one : ranked[i]) {
      if (gives_up()) return Added::gave_up;
      Result<Artifact> built = build(entry, one.candidate);
      if (!built) {
        site_.say(LogLevel::info, concat(one.candidate.id(), " is not on the shortlist for ",
                                         listed.example.text(), ": ", built.error().message));
        if (built.error().code == ErrorCode::compile) added = Added::some;
        continue;
      }
      GradedRecord record{.head = head_of(one, built->digest),
                          .match = Match::predicted,
                          .reason = MissReason::absent};
      number = add_kernel(family, {std::move(one.candidate), *std::move(built)}, std::move(record),
                          load);
    }
  }
  family.sections.push_back(std::move(section));
  return added;
}

void Shortlists::add_measured(Family& family, Match worst, AnswerFinder::Bits bits,
                              const Load& load) const {
  constexpr int kLooks = 128;  // at sizes of both, for those at which a kernel is chosen
  constexpr int kMostTries = 4;
  for (const AnswerFinder::KnownFamily& known : answers_.families(family.example)) {
    const std::vector<FreeDim>& own = known.problem.free();
    Family::Section section{.ranges = {}, .places = {}, .measured = true};
    bool meets = true;
    for (const auto& [name, size] : known.problem.last().problem().dims()) {
      const FreeDim* free = find_named(family.free, name);
      if (free == nullptr) {
        meets = meets && size == family.example.scope().find(name);
        continue;
      }
      const FreeDim* range = find_named(own, name);
      if (range != nullptr) section.places.push_back(section.ranges.size());
      section.ranges.push_back({name, std::max(free->first, range ? range->first : size),
                                std::min(free->last, range ? range->last : size)});
      meets = meets && section.ranges.back().first <= section.ranges.back().last;
    }
    if (!meets) continue;
    const auto add = [&](const std::vector<GradedRecord>& kernels, int most_tries) {
      section.listed.assign(kernels.size(), std::nullopt);
      std::vector<int> tries(kernels.size(), 0);
      for (const std::vector<double>& places : spread_evenly(section.places.size(), kLooks)) {
        std::vector<std::int64_t> sizes;
        for (std::size_t i = 0; i < places.size(); ++i) {
          sizes.push_back(size_at(section.ranges[section.places[i]], places[i]));
        }
        const Result<BoundProblem> problem = known.problem.at(sizes);
        if (!problem) continue;
        const DispatchTable::Order& order = section.table.order(sizes);
        for (std::size_t i = 0; i < kernels.size(); ++i) {
          const std::size_t kernel = order[i];
          const GradedRecord& record = kernels[kernel];
          if (record.match > worst) continue;
          if (section.listed[kernel] || ++tries[kernel] > most_tries) break;
          Result<Offer> offer = answers_.offer(*problem, record, bits);
          if (!offer || broken_habit(offer->candidate) != nullptr) continue;
          section.listed[kernel] = add_kernel(family, *std::move(offer), record, load);
          break;
        }
      }
      family.sections.push_back(section);
    };
    if (!known.pinned.empty()) {
      section.table = DispatchTable::always(known.pinned.size());
      add(known.pinned, kLooks);  // it may be valid at few sizes
    }
    section.table = known.table;
    add(known.kernels, kMostTries);
  }
}

bool Shortlists::add_points(Family& family, Match worst, const Load& load) const {
  RecordKey shape = site_.key(family.example);
  shape.problem = family.example.operation().name;
  for (const auto& [name, size] : family.example.problem().dims()) {
    const bool is_free = find_named(family.free, name) != nullptr;
    shape.problem += concat(' ', name, '=', is_free ? "?" : std::to_string(size));
  }
  for (const auto& [name, value] : family.example.problem().flags()) {
    shape.problem += concat(' ', name, '=', value);
  }
  std::set<std::vector<std::int64_t>> seen;
  for (const std::filesystem::path& root : site_.cache.roots()) {
    for (RecordStore::Alike& alike : RecordStore(root).like(shape)) {
      if (alike.sizes.size() != family.free.size()) return false;
      seen.insert(std::move(alike.sizes));
    }
  }
  std::size_t measured = 0;
  for (const std::vector<std::int64_t>& sizes : seen) {
    Family::Point& point = family.points.emplace_back(Family::Point{.sizes = sizes});
    const Result<BoundProblem> problem = family.example.resized(family.dims(sizes));
    if (!problem) continue;
    Answers answers = answers_.look_up(*problem);
    if (answers.records.empty() || answers.decisions.pin()) continue;
    GradedRecord& best = answers.records.front();
    const bool serves = best.head.grade == RecordGrade::measured &&
                        (best.match == Match::exact || best.match == Match::recheck) &&
                        best.match <= worst;
    point.answers_near = serves && worst >= Match::bucket;
    if (!serves || ++measured > kMostMeasured) continue;
    Result<Offer> offer = answers_.offer(*problem, best, AnswerFinder::Bits::stored);
    if (!offer) continue;
    point.own = add_kernel(family, *offer, best, load);
    if (!point.answers_near || broken_habit(offer->candidate) != nullptr) continue;
    best.match = Match::bucket;
    best.reason = MissReason::other_shape;
    point.near = add_kernel(family, *std::move(offer), std::move(best), load);
  }
  return true;
}

}  // namespace kernwright
