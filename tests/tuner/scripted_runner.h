#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulation/random_stream.h"
#include "tuner/finals/race.h"
#include "tuner/runner.h"

namespace kernwright {

/// A runner whose kernels are functions. It has its own clock, which sampling moves. The tests
/// choose the ids; nothing is loaded.
class ScriptedRunner final : public Runner {
 public:
  /// Microseconds of a candidate, or a probe kernel, at a time.
  std::function<double(Id id, double seconds)> time_us;
  std::function<double(Id id, double seconds)> sm_mhz = [](Id, double) { return 1980.0; };
  /// Returns how a candidate ends at its n-th sample.
  std::function<Outcome(Id id, int sample)> outcome = [](Id, int) { return Outcome::ok; };
  std::function<Outcome(Id id, CheckDepth depth)> checked = [](Id, CheckDepth) {
    return Outcome::ok;
  };
  std::set<Id> wrong_after_timing;
  std::set<int> restarts_at_call;  ///< of `sample`, the first is 1
  double noise = 0;                ///< sigma of a sample, relative
  double sample_seconds = 0.002;
  double seconds = 0;
  int calls = 0;
  std::map<Id, int> samples;
  std::map<Id, int> checks;
  std::map<Id, int> final_checks;

  explicit ScriptedRunner(std::uint64_t seed = 1) : random_(seed) {}

  Result<Prepared> prepare(const Candidate&, const CompiledKernel&) override {
    return Prepared{0, {}};
  }
  Result<Checked> check(Id id, CheckDepth depth) override {
    ++(depth == CheckDepth::screening ? checks : final_checks)[id];
    Checked result;
    result.step = end(checked(id, depth));
    result.report.exact = true;
    return result;
  }
  Result<Checked> check_after_timing(Id id) override {
    return Checked{end(wrong_after_timing.contains(id) ? Outcome::wrong_result : Outcome::ok), {}};
  }
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
    if (restarts_at_call.contains(++calls)) ++epoch_;
    std::vector<Sampled> result;
    for (const Id id : order) {
      seconds += sample_seconds;
      const Step step = id < 0 ? Step{} : end(outcome(id, samples[id]++));
      const double us = time_us(id, seconds) * std::exp(noise * random_.normal());
      result.push_back({step, {us, sm_mhz(id, seconds), seconds}});
    }
    return result;
  }
  Result<double> launch_gap_us(Id) override { return 1.0; }
  Result<Audit> audit() override { return Audit{}; }
  void drop(Id) override {}
  int epoch() const override { return epoch_; }
  bool lost() const override { return false; }

 private:
  static Step end(Outcome outcome) { return {outcome, outcome == Outcome::ok ? "" : "injected"}; }

  RandomStream random_;
  int epoch_ = 0;
};

/// A race of candidates with the times `us`, of which the first is the default. The first samples
/// are the true times unless the test says otherwise.
struct ScriptedRace {
  std::vector<double> us;
  ScriptedRunner runner;
  std::vector<Survivor> survivors;
  RaceOptions options;

  explicit ScriptedRace(std::vector<double> times, std::uint64_t seed = 1)
      : us(std::move(times)), runner(seed) {
    runner.time_us = [this](Runner::Id id, double) {
      return id < 0 ? 100 : us[static_cast<std::size_t>(id)];
    };
    options.random_seed = seed;
    options.alone = false;
    options.clock_seconds = [this] { return runner.seconds; };
    for (std::size_t i = 0; i < us.size(); ++i) {
      Survivor survivor;
      survivor.id = static_cast<Runner::Id>(i);
      survivor.choice.kernel_template = "c" + std::to_string(i);
      survivor.traits.is_default = i == 0;
      survivor.score_us = us[i];
      survivors.push_back(std::move(survivor));
    }
  }
  Result<RaceResult> run() { return race(runner, survivors, options); }
};

/// The survivor that won.
inline std::size_t winner(const RaceResult& result) {
  return result.finalists.at(result.decision.winner).survivor;
}

}  // namespace kernwright
