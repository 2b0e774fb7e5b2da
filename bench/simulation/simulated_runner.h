#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/simulation/bare_candidates.h"
#include "bench/simulation/noise.h"
#include "bench/simulation/recorded_space.h"
#include "bench/simulation/virtual_clock.h"
#include "tuner/runner.h"

namespace kernwright {

struct SimulationOptions {
  NoiseModel noise;
  std::uint64_t seed = 1;
  double sample_ms = 1.5;  ///< length of a sample of a candidate that takes less
};

/// A runner on recorded times. Samples are drawn in contiguous blocks from the steady half of a
/// recording (or its beginning, after the device was idle), so that successive samples stay
/// correlated. A configuration with a single sample always takes that time. Noise is added.
/// Everything spends virtual time. Candidates outside of the space are refused. Results are
/// determined by the seed: a candidate's results depend on its own samples and on the time, not on
/// other candidates.
class SimulatedRunner final : public Runner {
 public:
  /// All arguments by reference must outlive it.
  SimulatedRunner(const RecordedSpace& space, const BareCandidates& candidates, VirtualClock& clock,
                  SimulationOptions options);

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override;
  Result<Checked> check(Id id, CheckDepth depth) override;
  Result<Checked> check_after_timing(Id id) override;
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override;
  Result<double> launch_gap_us(Id id) override;
  DeviceUse take_use() override { return std::exchange(use_, {}); }
  /// The trust is C if foreign load was seen since the last audit.
  Result<Audit> audit() override;
  void drop(Id id) override;
  int epoch() const override { return epoch_; }
  bool lost() const override { return lost_; }

  /// The true time of a configuration: at a clock that no power limit lowers, or, with
  /// `power_limited`, alone for so long that the power limit has lowered the clock.
  double true_us(std::size_t configuration, bool power_limited) const;
  /// Returns the samples taken of candidates; probe kernels are not counted.
  int samples_taken() const { return samples_taken_; }

 private:
  /// The state of one configuration in the session.
  struct Course {
    explicit Course(std::uint64_t seed) : random(seed) {}
    RandomStream random;
    CandidateNoise noise;
    Outcome outcome = Outcome::ok;  ///< how it ends: recorded, or drawn
    int failure_at_sample = -1;     ///< -1: when it is loaded or checked
    std::optional<Step> failed;
    int samples = 0;
    double last_seconds = 0;     ///< when its last sample ended
    std::size_t next = 0;        ///< of the steady samples, which form a ring
    std::size_t block_left = 0;  ///< until another block is drawn
    double process_factor = 1;   ///< of the process it runs in, see restarts
    int process = 0;
  };

  Course& course(std::size_t configuration);
  Result<std::size_t> loaded(Id id) const;
  Step fail(Course& failing);
  DeviceNoise::State device_now();
  DeviceNoise::State device_running(double step, double seconds);
  void restart(double seconds);
  /// Lets the device work for `seconds`.
  void work(double seconds);
  Sample take_probe();
  Sampled take(std::size_t configuration);
  std::size_t next_recorded(Course& run, std::size_t count) const;

  const RecordedSpace& space_;
  const BareCandidates& candidates_;
  VirtualClock& clock_;
  SimulationOptions options_;
  DeviceNoise device_;
  RandomStream probe_random_;
  std::size_t best_ = 0;
  std::map<std::size_t, Course> courses_;        ///< by configuration
  std::vector<std::optional<std::size_t>> ids_;  ///< the configuration of each id; none: dropped
  DeviceUse use_;
  double busy_until_ = 0;
  int samples_since_idle_ = 0;
  int samples_taken_ = 0;
  std::size_t restarts_ = 0;
  int epoch_ = 0;
  bool loaded_by_others_ = false;
  bool lost_ = false;
};

}  // namespace kernwright
