#pragma once

#include <deque>

#include "tuner/runner.h"

namespace kernwright {

/// How the device drifts, seen by the reference kernels that are sampled between candidates.
class References {
 public:
  void add(Runner::Id reference, const Sample& sample);
  /// Forgets everything: a new process, or times that have changed for good.
  void reset() { *this = {}; }

  /// While it is true, what is added is news, and does not change what is usual.
  void freeze(bool frozen) { frozen_ = frozen; }

  /// Whether the latest samples of either reference lie further from its usual time than `share`,
  /// and further than its noise explains. The SM reference counts in cycles where its clock is
  /// known: at the power limit every large candidate leaves another clock behind, which is no
  /// disturbance. False before there is a usual time.
  bool off_by(double share) const;

  /// By how much everything is slower now, as ln(ratio): what both references agree on. Which of
  /// them a candidate follows is not known, so that what only one shows is not corrected for.
  double drift() const;

 private:
  struct Series {
    std::deque<double> usual;  ///< logarithms, the latest last
    std::deque<double> latest;

    double deviation() const;
    double spread() const;
  };

  void add(Series& series, double value) const;

  Series sm_, sm_cycles_, dram_;
  bool frozen_ = false;
};

}  // namespace kernwright
