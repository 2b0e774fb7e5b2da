#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "model/candidate/candidate.h"
#include "service/answer/builder.h"
#include "service/answer/site.h"
#include <kernwright/kernel.h>
#include <kernwright/match.h>
#include <kernwright/result.h>

namespace kernwright {

/// A record's winner as a kernel for the problem asked for: proven valid, and with its bits.
struct Offer {
  Candidate candidate;
  Artifact artifact;
};

/// How well the cache serves a problem: the match of the record that was taken. Where none was, it
/// is `none`, with the reason why the best record was not.
struct Coverage {
  Match match = Match::none;
  MissReason reason = MissReason::absent;
  Match best = Match::none;  ///< of the best record, taken or not
};

/// Finds the records that answer a problem, and what they offer. Thread-safe.
class AnswerFinder {
 public:
  /// Both outlive it.
  AnswerFinder(const Site& site, Builder& builder) : site_(site), builder_(builder) {}

  /// The records of the problem's key, best first, and what people decided about its candidates.
  Answers look_up(const BoundProblem& problem) const;

  /// Where the bits of an offer may come from.
  enum class Bits { stored, built };
  /// Gets a record that could answer, and its offer or why it has none. True takes it.
  using Take = std::function<bool(const GradedRecord&, Result<Offer>)>;
  /// Goes through the records that could answer, best first, until one is taken: those of
  /// `look_up`, and between measured and predicted ones those of neighbouring shapes. None that is
  /// worse than `worst` is offered.
  Coverage find(const BoundProblem& problem, Match worst, Bits bits, const Take& take) const;

  /// What may take the place of `served`, a kernel that `find` took: kernels of the record that it
  /// came from, as records that they had won. These are its runners-up, which were checked as the
  /// winner was. Beside each stands what differs from it in arguments `early` alone, which is the
  /// same kernel outside of chains. The best come first. None is banned.
  std::vector<GradedRecord> next_best(const BoundProblem& problem,
                                      const KernelSummary& served) const;
  /// The winner of a record as a kernel for the problem. Errors: why it is none.
  Result<Offer> offer(const BoundProblem& problem, const GradedRecord& record, Bits bits) const;

  /// Whether a lookup would serve the record's winner with these bits, which are its artifact's.
  /// That is not known, and no error, where its operation or its template is none of today's.
  /// Errors: why not.
  Result<void> check(const RecordHead& head, const CompiledKernel& bits) const;

  /// The winner as a candidate for this problem; `refused` says why it is none.
  Result<Candidate> candidate(const BoundProblem& problem, const HeadWinner& winner,
                              MissReason& refused) const;

  /// Today's, as far as it is known. It lacks the digest of a template.
  RecordEnvironment environment() const;
  /// The digest of a template as it is now; empty where there is none of that name.
  std::string template_digest(std::string_view name) const;

 private:
  Answers look_up_with_neighbours(const BoundProblem& problem) const;
  Result<Offer> offer(const BoundProblem& problem, const GradedRecord& record, Bits bits,
                      MissReason& lacks) const;
  /// The choices that differ from this one in arguments `early` alone, those of the largest
  /// arguments first.
  std::vector<Choice> early_variants(const BoundProblem& problem, const Candidate& own) const;
  bool has_own_bits(const BoundProblem& problem, const GradedRecord& record) const;
  TieredCache::Now now() const;

  const Site& site_;
  Builder& builder_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string, std::less<>> template_digests_;  ///< once asked for
};

}  // namespace kernwright
