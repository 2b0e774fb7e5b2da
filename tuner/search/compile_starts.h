#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "tuner/search/search.h"
#include "tuner/search/trial_book.h"

namespace kernwright {

/// Decides which candidates are compiled, and in which order: each at most once, as the strategy
/// proposes them, until the budget's trials are used up. Candidates that are known to fail are not
/// compiled.
class CompileStarts {
 public:
  /// All of them outlive it.
  CompileStarts(const SearchInput& input, const TuningOptions& options, TrialBook& book);

  /// Returns false if it was started before, or is known to fail.
  bool start(std::size_t candidate);
  /// Starts the strategy's proposals while the compilers want more.
  void start_more();
  /// Starts a candidate that needs no compile of its own; returns false if the strategy has none.
  bool start_compiled();
  /// Returns whether the strategy has nothing more to propose.
  bool exhausted() const { return exhausted_; }
  /// Returns whether the budget has trials left.
  bool may_start() const { return started_.size() < most_; }

 private:
  const SearchInput& input_;
  TrialBook& book_;
  std::size_t most_;
  std::map<std::string, Outcome> known_failures_;  ///< by the candidate's id
  std::set<std::size_t> started_;
  bool exhausted_ = false;
};

}  // namespace kernwright
