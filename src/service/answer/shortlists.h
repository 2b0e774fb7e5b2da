#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service/answer/answer_finder.h"
#include "service/answer/builder.h"
#include "service/answer/family.h"
#include "service/answer/site.h"
#include "support/mutex.h"
#include "tuner/candidates/shortlist.h"
#include <kernwright/result.h>

namespace kernwright {

/// The shortlists of a service: once the candidates of a family were ranked at sizes spread over
/// it, a size that nobody asked for yet is answered by one of a few kernels, without a search and
/// mostly without a compile. Thread-safe.
class Shortlists {
 public:
  /// Both outlive it.
  Shortlists(const Site& site, const AnswerFinder& answers, Builder& builder)
      : site_(site), answers_(answers), builder_(builder) {}

  /// A kernel of a shortlist for a problem.
  struct Answer {
    Offer offer;
    RecordHead head;  ///< of a prediction
  };
  /// Returns the kernel for the problem, or nullopt if its family has no shortlist or none of its
  /// kernels will do. A kernel whose bits are at hand is taken before one that has to be compiled,
  /// unless it is much slower and `may_compile`. None that is banned is taken.
  std::optional<Answer> find(const BoundProblem& problem, const Decisions& decisions,
                             bool may_compile);

  /// Returns true if the family of the problem has a shortlist, or had none that is of use.
  bool knows(const BoundProblem& problem) const;
  /// Loads a kernel. Returns null without a GPU.
  using Load = std::function<std::shared_ptr<const Launcher>(const Offer&)>;
  /// Loads the kernels of the records of families that answer for sizes of the problem's family, no
  /// worse than `worst`, and those that were measured for single sizes. If `predicts`, and records
  /// of families do not answer for all sizes, makes a shortlist too, unless there is one, and
  /// compiles and loads its kernels. Returns null if nothing decides between kernels by sizes
  /// alone. Gives up soon after `stop` becomes true, or
  /// once nothing may be compiled.
  std::shared_ptr<const Family> make(const BoundProblem& problem, bool predicts, Match worst,
                                     const Load& load, const std::atomic<bool>& stop);

 private:
  /// The shortlist of one family, and the bits that were compiled for it.
  struct Entry {
    Shortlist choices;
    Mutex mutex;
    /// An error for a candidate that does not compile, or spills more than it may.
    std::map<std::string, Result<Artifact>> artifacts KW_GUARDED_BY(mutex);
  };
  std::shared_ptr<Entry> entry(const BoundProblem& problem) const;
  static std::optional<Result<Artifact>> at_hand(Entry& entry, const Candidate& candidate);
  Result<Artifact> build(Entry& entry, const Candidate& candidate);
  RecordHead head_of(const Shortlisted& one, std::string artifact) const;
  /// Loads a kernel, unless its bits are loaded for a family already.
  std::shared_ptr<const Launcher> loaded(const Offer& offer, const Load& load) const;
  /// Returns the number of the kernel.
  std::size_t add_kernel(Family& family, Offer offer, GradedRecord record, const Load& load) const;
  /// Adds a section for each record of a family that has sizes of this one, with the kernels that
  /// are chosen at some of these.
  void add_measured(Family& family, Match worst, AnswerFinder::Bits bits, const Load& load) const;
  /// Keeps a shortlist of these choices from now on, with the bits that `before` has, and without
  /// the choices that it has errors for. Returns null if it gave up.
  std::shared_ptr<Entry> make_entry(const BoundProblem& problem, const RankedChoices& ranked,
                                    Entry* before, const std::function<bool()>& stopped);
  /// Adds the section of the shortlist.
  enum class Added { all, some, gave_up };
  Added add_predicted(Family& family, Entry& entry, const Load& load,
                      const std::function<bool()>& stopped);
  /// Adds the sizes of the family with records and decisions of their own, and the measured kernels
  /// of some. Returns false if the cache does not tell the sizes of all.
  bool add_points(Family& family, Match worst, const Load& load) const;

  const Site& site_;
  const AnswerFinder& answers_;
  Builder& builder_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ KW_GUARDED_BY(mutex_);
  /// By the digests of their artifacts: families of one form share kernels.
  mutable std::map<std::string, std::shared_ptr<const Launcher>> launchers_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
