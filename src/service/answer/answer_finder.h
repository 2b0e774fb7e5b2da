#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "model/candidate/candidate.h"
#include "model/candidate/dispatch_table.h"
#include "model/operation/ranged_problem.h"
#include "service/answer/builder.h"
#include "service/answer/site.h"
#include "support/mutex.h"
#include <kernwright/kernel.h>
#include <kernwright/match.h>
#include <kernwright/result.h>

namespace kernwright {

/// A record's winner as a kernel for the problem asked for: proven valid, and with its bits.
struct Offer {
  Candidate candidate;
  Artifact artifact;
};

/// How well the cache serves a problem: the match of the record that was taken. If none was taken,
/// the match is `none`, and the reason tells why the best one was not.
struct Coverage {
  Match match = Match::none;
  MissReason reason = MissReason::absent;
  Match best = Match::none;  ///< of the best record, taken or not
  bool of_family = false;    ///< the record is of a family
  Decisions decisions = {};  ///< if none was taken
};

/// Finds the records that answer a problem, and what they offer. Thread-safe.
class AnswerFinder {
 public:
  /// Both outlive it.
  AnswerFinder(const Site& site, Builder& builder) : site_(site), builder_(builder) {}

  /// Returns the records of the problem's key, best first, and what people decided about its
  /// candidates.
  Answers look_up(const BoundProblem& problem) const;

  /// A family with a record.
  struct KnownFamily {
    RangedProblem problem;
    DispatchTable table;
    /// Its kernels as answers, by their numbers in the table. Those that are banned, or whose
    /// template is gone, have match `none`.
    std::vector<GradedRecord> kernels;
    std::vector<GradedRecord> pinned;  ///< answer before the others
  };
  /// Returns a kernel of a family as an answer in today's environment.
  GradedRecord graded(const FamilyHead& family, const FamilyKernel& kernel) const;
  /// Returns the families of the problem's form: their ranges may not have its sizes.
  std::vector<KnownFamily> families(const BoundProblem& problem) const;
  /// Returns the record of this family, or of one whose ranges include all of its sizes.
  std::optional<TieredCache::FoundFamily> record_of(const RangedProblem& family) const;
  struct First {
    std::optional<GradedRecord> record;
    Decisions decisions;  ///< on the problem
  };
  /// Returns the first of the records that `find` goes through, but for neighbouring shapes, whose
  /// winner is a kernel for the problem. Its bits may be missing.
  First first(const BoundProblem& problem) const;

  /// The sources that the bits of an offer may come from.
  enum class Bits { stored, built };
  /// Receives a record that could answer, and its offer or why it has none. Returns true to take
  /// it.
  using Take = std::function<bool(const GradedRecord&, Result<Offer>)>;
  /// Goes through the records that could answer, best first, until one is taken: the records of
  /// `look_up`, behind exact ones the kernels of families, and between measured and predicted ones
  /// the records of neighbouring shapes. None that is worse than `worst` is offered.
  Coverage find(const BoundProblem& problem, Match worst, Bits bits, const Take& take) const;

  /// Returns the kernels that can take the place of the winner of `served`, a record that `find`
  /// took, as records that they had won. They are its runners-up, which were checked as the winner
  /// was. Beside each is its variant that differs in arguments `early` alone, which is the same
  /// kernel outside of chains. The best come first. None is banned.
  std::vector<GradedRecord> next_best(const BoundProblem& problem,
                                      const GradedRecord& served) const;
  /// Returns the winner of a record as a kernel for the problem. Errors: why it is not one.
  Result<Offer> offer(const BoundProblem& problem, const GradedRecord& record, Bits bits) const;

  /// Checks that a lookup would serve the record's winner with these bits, which are its
  /// artifact's. This is not known, and not an error, if today's catalog does not have its
  /// operation or the same text of its template. Errors: why the lookup would not.
  Result<void> check(const RecordHead& head, const CompiledKernel& bits) const;

  /// Returns the winner as a candidate for this problem. If it is not one, `refused` says why.
  Result<Candidate> candidate(const BoundProblem& problem, const HeadWinner& winner,
                              MissReason& refused) const;

  /// Returns a choice without its derived values, as decisions name it.
  Choice as_decided(const Choice& choice) const;

  /// Returns today's environment, as far as it is known. It lacks the digest of a template.
  RecordEnvironment environment() const;
  /// Returns the digest of a template as it is now, or an empty text if there is none of that name.
  std::string template_digest(std::string_view name) const;

 private:
  /// Returns the records of `look_up`, and among them, by their match, what families answer.
  Answers look_up_with_families(const BoundProblem& problem) const;
  /// The same, and what neighbouring shapes answer.
  Answers look_up_with_neighbours(const BoundProblem& problem) const;
  void add_families(const BoundProblem& problem, Answers& answers) const;
  /// Returns the winner of an answer as a candidate, which no habit keeps from being served.
  Result<Candidate> candidate(const BoundProblem& problem, const GradedRecord& record,
                              MissReason& refused) const;
  Result<Offer> offer(const BoundProblem& problem, const GradedRecord& record, Bits bits,
                      MissReason& lacks) const;
  /// Returns the choices that differ from this one in arguments `early` alone, with the largest
  /// arguments first.
  std::vector<Choice> early_variants(const BoundProblem& problem, const Candidate& own) const;
  bool has_own_bits(const Candidate& candidate, const GradedRecord& record) const;
  bool banned(const Decisions& decisions, const Choice& choice) const;
  TieredCache::Now now() const;

  const Site& site_;
  Builder& builder_;
  mutable Mutex mutex_;
  /// Once asked for.
  mutable std::map<std::string, std::string, std::less<>> template_digests_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
