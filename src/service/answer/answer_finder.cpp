#include "service/answer/answer_finder.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "compile/render.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright {

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
  const std::lock_guard lock(mutex_);
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

Answers AnswerFinder::look_up_with_neighbours(const BoundProblem& problem) const {
  Answers answers = look_up(problem);
  std::vector<GradedRecord>& records = answers.records;
  if (!records.empty() && records.front().match < Match::bucket) return answers;
  std::vector<GradedRecord> near = site_.cache.near(
      site_.key(problem), problem, now(),
      [this](std::string_view name) { return template_digest(name); }, answers.decisions);
  records.insert(records.begin(), std::make_move_iterator(near.begin()),
                 std::make_move_iterator(near.end()));
  return answers;
}

Coverage AnswerFinder::find(const BoundProblem& problem, Match worst, Bits bits,
                            const Take& take) const {
  const Answers answers = look_up_with_neighbours(problem);
  Coverage missing{.match = Match::none, .reason = answers.reason};
  for (const GradedRecord& record : answers.records) {
    MissReason lacks = record.reason;
    if (record.match <= worst && take(record, offer(problem, record, bits, lacks))) {
      return {.match = record.match, .reason = record.reason, .best = record.match};
    }
    if (missing.best == Match::none) {
      missing = {.match = Match::none, .reason = lacks, .best = record.match};
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

/// The winner with its bits; `lacks` says why there are none, where that is known better than from
/// the record's own reason.
Result<Offer> AnswerFinder::offer(const BoundProblem& problem, const GradedRecord& record,
                                  Bits bits, MissReason& lacks) const {
  const HeadWinner& winner = record.head.winner;
  KW_ASSIGN(Candidate found, candidate(problem, winner, lacks));
  lacks = record.reason;
  if (has_own_bits(problem, record)) {
    if (Lookup<CompiledKernel> stored = site_.cache.artifact(winner.artifact)) {
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

/// Whether the record's own bits are those of the winner for this problem. They are not where the
/// template's text has changed, or where another problem's dims were compiled in.
bool AnswerFinder::has_own_bits(const BoundProblem& problem, const GradedRecord& record) const {
  const HeadWinner& winner = record.head.winner;
  if (record.reason == MissReason::template_changed || winner.artifact.empty()) return false;
  if (record.reason != MissReason::other_shape) return true;
  const Result<const KernelTemplate*> found =
      site_.catalog->kernel_template(winner.choice.kernel_template);
  const Result<Problem> written = Problem::parse(record.head.key.problem);
  if (!found || !written) return false;
  const Result<BoundProblem> measured = BoundProblem::bind(problem.operation(), *written);
  if (!measured) return false;
  return std::ranges::all_of((*found)->constant_dims, [&](const std::string& dim) {
    return problem.scope().find(dim) == measured->scope().find(dim);
  });
}

}  // namespace kernwright
