#pragma once

#include <deque>

#include "tuner/runner.h"

namespace kernwright {

/// The drift of the device, measured with the probe kernels that are sampled between candidates.
class ClockProbe {
 public:
  void add(Runner::Id probe, const Sample& sample);
  /// Forgets everything. This is for a new process, and for times that have changed for good.
  void reset() { *this = {}; }

  /// While it is frozen, new samples do not change what is usual.
  void freeze(bool frozen) { frozen_ = frozen; }

  /// Returns whether the latest samples of a probe are further from its usual time than `share`,
  /// and further than its noise explains. Returns false before there is a usual time. The SM probe
  /// counts in clock cycles if its clock is known: at the power limit every large candidate leaves
  /// another clock behind, and that is not a disturbance.
  bool off_by(double share) const;

  /// By how much everything is slower now, as ln(ratio). It is the part that both probes agree
  /// on. Nobody knows which of them a candidate follows, so a drift that only one shows is not
  /// corrected for.
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
