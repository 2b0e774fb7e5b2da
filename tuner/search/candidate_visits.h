#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "support/hash.h"
#include "tuner/search/screening.h"
#include "tuner/search/search.h"
#include "tuner/search/search_clock.h"
#include "tuner/search/survivors.h"
#include "tuner/search/trial_book.h"

namespace kernwright {

/// Visits candidates as their compiles end: each is checked and sampled twice, and joins the
/// survivors if it passes. Compiled code that does not fit the device, or spills beyond reason, is
/// not loaded. Code that is equal to code measured before shares its samples.
class CandidateVisits {
 public:
  /// All of them outlive it. `predicted` and `incumbent` are candidates of the input.
  CandidateVisits(const SearchInput& input, std::uint64_t random_seed, const SearchClock& clock,
                  std::size_t predicted, std::optional<std::size_t> incumbent, Screening& screening,
                  TrialBook& book, Survivors& survivors, TimeShares& shares)
      : input_(input),
        random_seed_(random_seed),
        clock_(clock),
        predicted_(predicted),
        incumbent_(incumbent),
        screening_(screening),
        book_(book),
        survivors_(survivors),
        shares_(shares) {}

  /// Tries a candidate. Errors: no compiler; the runner's own; the device was lost.
  Result<void> visit(CompileQueue::Ready ready);

  /// A few more samples of the best so far, and of a probe kernel: free information, and the device
  /// stays as warm as it is.
  Result<void> fill_idle_time();

 private:
  /// Results of code that was measured.
  struct Measured {
    std::size_t trial = 0;
    std::vector<double> samples_us;
  };

  bool spills_too_much(const Trial& trial) const;
  Result<void> measure(std::size_t candidate, Trial trial, CompiledCandidate compiled);
  Result<void> sample_again();
  Result<void> add_sample(Survivor& survivor, const Runner::Sampled& sampled);

  const SearchInput& input_;
  std::uint64_t random_seed_;
  const SearchClock& clock_;
  std::size_t predicted_;
  std::optional<std::size_t> incumbent_;
  Screening& screening_;
  TrialBook& book_;
  Survivors& survivors_;
  TimeShares& shares_;
  std::map<Digest, Measured> measured_code_;  ///< by `code_identity`
  std::uint64_t drawn_ = 0;
};

}  // namespace kernwright
