#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// A runner that another thread can stop: every call that would use the device then fails with
/// `unavailable` instead, so that a search or a race ends with its next step, wherever it is. The
/// runner outlives it.
class StoppableRunner final : public Runner {
 public:
  StoppableRunner(Runner& runner, std::function<bool()> stopped)
      : runner_(runner), stopped_(std::move(stopped)) {}

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override;
  Result<Checked> check(Id id, CheckDepth depth) override;
  Result<Checked> check_after_timing(Id id) override;
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override;
  Result<double> launch_gap_us(Id id) override;
  Result<LaunchTimes> launch_paths(Id id) override;
  Result<Audit> audit() override;
  void fill(double seconds) override;

  DeviceUse take_use() override { return runner_.take_use(); }
  void drop(Id id) override { runner_.drop(id); }
  int epoch() const override { return runner_.epoch(); }
  bool lost() const override { return runner_.lost(); }

 private:
  Runner& runner_;
  const std::function<bool()> stopped_;
};

}  // namespace kernwright
