#include "service/answer/answer_finder.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "compile/launch_fit.h"
#include "compile/render.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright {
namespace {

/// Returns true if the first launch takes an argument that depends on how it starts.
bool takes_early(const ExecutionPlan& plan) {
  return std::ranges::any_of(plan.launches.front().arguments, depends_on_start,
                             &ArgumentPlan::kind);
}

/// Returns the sum of these arguments.
std::int64_t early_value(const ExecutionPlan& plan) {
  std::int64_t sum = 0;
  for (const ArgumentPlan& argument : plan.launches.front().arguments) {
    if (depends_on_start(argument.kind)) sum += argument.value;
  }
  return sum;
}

/// Returns the configuration with every value of every run-time parameter. All of them share one
/// compile.
std::vector<Configuration> runtime_neighbours(const KernelTemplate& kernel_template,
                                              const Configuration& configuration) {
  std::vector<std::vector<std::pair<std::string, std::int64_t>>> made{configuration.values()};
  for (const Parameter& parameter : kernel_template.space.parameters()) {
    if (parameter.binding == Binding::compile) continue;
    const std::size_t before = made.size();
    for (const std::int64_t value : parameter.values) {
      if (value == configuration.at(parameter.name)) continue;
      for (std::size_t i = 0; i < before; ++i) {
        auto values = made[i];
        std::ranges::find(values, parameter.name, &std::pair<std::string, std::int64_t>::first)
            ->second = value;
        made.push_back(std::move(values));
      }
    }
  }
  std::vector<Configuration> neighbours;
  for (auto& values : made) neighbours.emplace_back(std::move(values));
  return neighbours;
}

}  // namespace

RecordEnvironment AnswerFinder::environment() const {
  return {.template_digest = {},
          .compiler = builder_.compiler(),
          .driver = site_.identity.driver_version,
          .kernwright = std::string(kernwright_version())};
}

TieredCache::Now AnswerFinder::now() const {
  RecordEnvironment today = environment();
  return {.compiler = std::move(today.compiler),
          .driver = std::move(today.driver),
          .kernwright = std::move(today.kernwright)};
}

std::string AnswerFinder::template_digest(std::string_view name) const {
  const MutexLock lock(mutex_);
  if (const auto known = template_digests_.find(name); known != template_digests_.end()) {
    return known->second;
  }
  const Result<const KernelTemplate*> found = site_.catalog->kernel_template(name);
  if (!found) return {};
  return template_digests_.emplace(name, kernwright::template_digest(**found, *site_.catalog))
      .first->second;
}

Answers AnswerFinder::look_up(const BoundProblem& problem) const {
  Answers answers = site_.cache.lookup(
      site_.key(problem), now(), [this](std::string_view name) { return template_digest(name); });
  for (const std::string& defect : answers.defects) {
    site_.say(LogLevel::warning, concat("passed over in the cache: ", defect));
  }
  return answers;
}

Answers AnswerFinder::look_up_with_families(const BoundProblem& problem) const {
  Answers answers = look_up(problem);
  if (answers.decisions.pin()) return answers;
  const std::vector<GradedRecord>& records = answers.records;
  if (records.empty() || records.front().match != Match::exact) add_families(problem, answers);
  return answers;
}

Answers AnswerFinder::look_up_with_neighbours(const BoundProblem& problem) const {
  Answers answers = look_up_with_families(problem);
  if (answers.decisions.pin()) return answers;
  std::vector<GradedRecord>& records = answers.records;
  if (!records.empty() && records.front().match < Match::bucket) return answers;
  std::vector<GradedRecord> near = site_.cache.near(
      site_.key(problem), problem, now(),
      [this](std::string_view name) { return template_digest(name); }, answers.decisions);
  records.insert(records.begin(), std::make_move_iterator(near.begin()),
                 std::make_move_iterator(near.end()));
  return answers;
}

Choice AnswerFinder::as_decided(const Choice& choice) const {
  const auto found = site_.catalog->kernel_template(choice.kernel_template);
  if (!found) return choice;
  return {choice.kernel_template, without_derived(**found, choice.configuration)};
}

bool AnswerFinder::banned(const Decisions& decisions, const Choice& choice) const {
  return decisions.banned(choice.id()) || decisions.banned(as_decided(choice).id());
}

GradedRecord AnswerFinder::graded(const FamilyHead& family, const FamilyKernel& kernel) const {
  return TieredCache::graded(family, kernel, now(),
                             [this](std::string_view name) { return template_digest(name); });
}

std::vector<AnswerFinder::KnownFamily> AnswerFinder::families(const BoundProblem& problem) const {
  std::vector<KnownFamily> known;
  for (const TieredCache::FoundFamily& found : site_.cache.families(site_.key(problem))) {
    const Result<Problem> written = Problem::parse(found.head.key.problem);
    if (!written) continue;
    Result<RangedProblem> family = RangedProblem::bind(problem.operation(), *written);
    if (!family || !family->has_form(problem.problem())) continue;
    Result<DispatchTable> table = table_of(found.head);
    if (!table) continue;
    KnownFamily& one =
        known.emplace_back(KnownFamily{*std::move(family), *std::move(table), {}, {}});
    for (const FamilyKernel& kernel : found.head.kernels) {
      GradedRecord& answer = one.kernels.emplace_back(graded(found.head, kernel));
      if (banned(found.decisions, kernel.choice)) answer.match = Match::none;
    }
    const std::optional<Override>& pin = found.decisions.pin();
    if (!pin) continue;
    for (const FamilyKernel& kernel : found.head.kernels) {
      if (kernel.choice != pin->choice && as_decided(kernel.choice) != pin->choice) continue;
      one.pinned.push_back(graded(found.head, kernel));
    }
    if (!one.pinned.empty()) continue;
    one.pinned.push_back(
        graded(found.head, {.choice = pin->choice,
                            .template_digest = template_digest(pin->choice.kernel_template),
                            .artifact = {}}));
  }
  return known;
}

std::optional<TieredCache::FoundFamily> AnswerFinder::record_of(const RangedProblem& family) const {
  const RecordKey key = site_.key(family.text());
  std::optional<TieredCache::FoundFamily> wider;
  for (TieredCache::FoundFamily& found : site_.cache.families(key)) {
    if (found.head.key == key) return std::move(found);
    const Result<Problem> written = Problem::parse(found.head.key.problem);
    if (!written || wider) continue;
    const auto other = RangedProblem::bind(family.last().operation(), *written);
    if (other && other->includes(family)) wider = std::move(found);
  }
  return wider;
}

AnswerFinder::First AnswerFinder::first(const BoundProblem& problem) const {
  Answers answers = look_up_with_families(problem);
  First first{.record = std::nullopt, .decisions = std::move(answers.decisions)};
  for (GradedRecord& record : answers.records) {
    MissReason refused = MissReason::none;
    if (!candidate(problem, record, refused)) continue;
    first.record = std::move(record);
    break;
  }
  return first;
}

void AnswerFinder::add_families(const BoundProblem& problem, Answers& answers) const {
  for (const KnownFamily& family : families(problem)) {
    const auto sizes = family.problem.sizes_of(problem.problem());
    if (!sizes) continue;
    std::vector<GradedRecord> ordered = family.pinned;
    const DispatchTable::Order& order = family.table.order(*sizes);
    for (std::size_t i = 0; i < family.kernels.size(); ++i) {
      ordered.push_back(family.kernels[order[i]]);
    }
    std::erase_if(ordered, [&](const GradedRecord& one) {
      return one.match == Match::none || banned(answers.decisions, one.head.winner.choice);
    });
    if (ordered.empty()) continue;
    const auto behind = std::ranges::find_if(answers.records, [&](const GradedRecord& one) {
      return one.match > ordered.front().match;
    });
    answers.records.insert(behind, std::make_move_iterator(ordered.begin()),
                           std::make_move_iterator(ordered.end()));
  }
}

Coverage AnswerFinder::find(const BoundProblem& problem, Match worst, Bits bits,
                            const Take& take) const {
  const Answers answers = look_up_with_neighbours(problem);
  Coverage missing{.match = Match::none, .reason = answers.reason, .decisions = answers.decisions};
  for (const GradedRecord& record : answers.records) {
    MissReason lacks = record.reason;
    if (record.match <= worst && take(record, offer(problem, record, bits, lacks))) {
      return {.match = record.match,
              .reason = record.reason,
              .best = record.match,
              .of_family = is_family(record.head.key)};
    }
    if (missing.best == Match::none) {
      missing.reason = lacks;
      missing.best = record.match;
    }
  }
  return missing;
}

Result<Candidate> AnswerFinder::candidate(const BoundProblem& problem, const HeadWinner& winner,
                                          MissReason& refused) const {
  refused = MissReason::template_missing;
  KW_ASSIGN(const KernelTemplate* found,
            site_.catalog->kernel_template(winner.choice.kernel_template));
  refused = MissReason::rule_violated;
  KW_TRY(applies(*found, problem, site_.profile));
  return make_candidate(*found, problem, winner.choice.configuration, site_.profile);
}

Result<Candidate> AnswerFinder::candidate(const BoundProblem& problem, const GradedRecord& record,
                                          MissReason& refused) const {
  KW_ASSIGN(Candidate found, candidate(problem, record.head.winner, refused));
  if (record.match == Match::bucket || record.match == Match::family) {
    if (const Rule* const habit = broken_habit(found)) {
      refused = MissReason::rule_violated;
      return Error{ErrorCode::not_found, habit->failure(found.scope)};
    }
  }
  return found;
}

std::vector<Choice> AnswerFinder::early_variants(const BoundProblem& problem,
                                                 const Candidate& own) const {
  if (!takes_early(own.plan)) return {};
  std::vector<Candidate> found;
  for (const Configuration& other : runtime_neighbours(*own.kernel_template, own.configuration)) {
    Result<Candidate> made = make_candidate(*own.kernel_template, problem, other, site_.profile);
    if (!made || !same_when_late(made->plan, own.plan)) continue;
    const auto is_same = [&](const Candidate& one) { return same_in_chain(one.plan, made->plan); };
    if (is_same(own) || std::ranges::any_of(found, is_same)) continue;
    found.push_back(*std::move(made));
  }
  std::ranges::stable_sort(found, std::greater<>(),
                           [](const Candidate& one) { return early_value(one.plan); });
  std::vector<Choice> choices;
  for (const Candidate& one : found) choices.push_back(one.choice());
  return choices;
}

std::vector<GradedRecord> AnswerFinder::next_best(const BoundProblem& problem,
                                                  const GradedRecord& served) const {
  std::vector<HeadWinner> ranked{served.head.winner};
  if (!served.file.empty()) {
    const Lookup<TuningRecord> record = read_record(served.file);
    // If another process tuned meanwhile, the file may be of another text of the template.
    if (record &&
        record.value->environment.template_digest == served.head.environment.template_digest) {
      for (const RankedConfiguration& one : record.value->runners_up) {
        HeadWinner& next = ranked.emplace_back(winner_of(one, record.value->rounds));
        // The record has the digest of the winner's template alone, so the artifact of another
        // template may be of an older text.
        if (next.choice.kernel_template != ranked.front().choice.kernel_template) {
          next.artifact.clear();
        }
      }
    }
  }
  std::vector<std::pair<HeadWinner, Candidate>> valid;
  for (const HeadWinner& one : ranked) {
    MissReason refused = MissReason::none;
    if (Result<Candidate> made = candidate(problem, one, refused)) {
      valid.emplace_back(one, *std::move(made));
    }
  }
  // Kernels that read ahead gain most in a chain. The served one is left out below, whatever its
  // place.
  std::ranges::stable_partition(valid, [&](const auto& one) {
    return one.first.choice == ranked.front().choice || reads_ahead(one.second.plan);
  });
  std::vector<HeadWinner> found;
  std::vector<HeadWinner> further;  // variants beyond the first of each
  const auto is_known = [&](const Choice& choice) {
    const auto is = [&](const HeadWinner& one) { return one.choice == choice; };
    return std::ranges::any_of(found, is) || std::ranges::any_of(further, is);
  };
  for (const auto& [one, made] : valid) {
    if (is_known(one.choice)) continue;
    found.push_back(one);
    std::vector<HeadWinner>* place = &found;
    for (Choice& variant : early_variants(problem, made)) {
      if (is_known(variant)) continue;
      HeadWinner& other = place->emplace_back(one);
      other.choice = std::move(variant);
      place = &further;
    }
  }
  found.insert(found.end(), further.begin(), further.end());
  const Decisions decisions = look_up(problem).decisions;
  std::vector<GradedRecord> records;
  for (HeadWinner& one : found) {
    if (one.choice == ranked.front().choice || decisions.banned(one.choice.id())) continue;
    records.push_back(served);
    records.back().head.winner = std::move(one);
  }
  return records;
}

Result<Offer> AnswerFinder::offer(const BoundProblem& problem, const GradedRecord& record,
                                  Bits bits) const {
  MissReason lacks = MissReason::none;
  return offer(problem, record, bits, lacks);
}

/// Returns the winner with its bits. If there are none, `lacks` becomes the reason, if that is
/// known better than from the record.
Result<Offer> AnswerFinder::offer(const BoundProblem& problem, const GradedRecord& record,
                                  Bits bits, MissReason& lacks) const {
  const HeadWinner& winner = record.head.winner;
  KW_ASSIGN(Candidate found, candidate(problem, record, lacks));
  lacks = record.reason;
  if (has_own_bits(found, record)) {
    if (Lookup<CompiledKernel> stored = site_.cache.artifact(winner.artifact)) {
      if (const std::optional<Misfit> misfit = find_misfit(found.plan, *stored.value)) {
        return Error{ErrorCode::corrupt, misfit->what};
      }
      return Offer{std::move(found),
                   {.digest = winner.artifact,
                    .kernel = std::make_shared<const CompiledKernel>(*std::move(stored.value)),
                    .cached = true}};
    }
    lacks = MissReason::artifact_missing;
  }
  if (bits == Bits::stored) {
    return Error{ErrorCode::not_found, concat("its bits, ", winner.artifact,
                                              ", are not stored, and nothing may be compiled")};
  }
  KW_ASSIGN(Artifact artifact, builder_.build(found));
  return Offer{std::move(found), std::move(artifact)};
}

Result<void> AnswerFinder::check(const RecordHead& head, const CompiledKernel& bits) const {
  const HeadWinner& winner = head.winner;
  const Result<Problem> problem = Problem::parse(head.key.problem);
  if (!problem) return {};
  const Result<BoundProblem> bound = site_.bind(*problem);
  const bool is_today =
      template_digest(winner.choice.kernel_template) == head.environment.template_digest;
  if (!bound || !is_today) return {};
  MissReason refused = MissReason::none;
  const Result<Candidate> made = candidate(*bound, winner, refused);
  if (!made) {
    return Error{made.error().code, concat("no lookup serves its winner ", winner.choice.id(), ": ",
                                           made.error().message)};
  }
  if (const std::optional<Misfit> misfit = find_misfit(made->plan, bits)) {
    return Error{ErrorCode::corrupt,
                 concat("its winner's artifact ", winner.artifact, ": ", misfit->what)};
  }
  return {};
}

/// Returns true if the record's own bits are the winner's for this problem. They are not if the
/// template's text has changed, or if another problem's dims were compiled in.
bool AnswerFinder::has_own_bits(const Candidate& candidate, const GradedRecord& record) const {
  const HeadWinner& winner = record.head.winner;
  if (record.reason == MissReason::template_changed || winner.artifact.empty()) return false;
  if (record.reason != MissReason::other_shape) return true;
  const Result<Problem> written = Problem::parse(record.head.key.problem);
  if (!written) return false;
  const Result<BoundProblem> measured =
      BoundProblem::bind(candidate.problem->operation(), *written);
  if (!measured) return false;
  const Result<Candidate> made = make_candidate(*candidate.kernel_template, *measured,
                                                winner.choice.configuration, site_.profile);
  return made && bits_key(*made) == bits_key(candidate);
}

}  // namespace kernwright
