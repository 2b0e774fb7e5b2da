#pragma once

#include <string>
#include <utility>

#include "bench/simulation/bare_candidates.h"
#include "bench/simulation/recorded_space.h"
#include "bench/simulation/simulated_runner.h"
#include "bench/simulation/virtual_compile_queue.h"
#include "tuner/search/search.h"

namespace kernwright {

/// A whole search of a space without a GPU, a compiler or time. Used once.
class VirtualSession {
 public:
  VirtualSession(RecordedSpace space, NoiseModel noise, std::uint64_t seed = 1, int threads = 16)
      : space_(std::move(space)),
        runner_(space_, candidates_, clock_, {.noise = std::move(noise), .seed = seed}),
        queue_(space_, candidates_, clock_, threads) {
    options.random_seed = seed;
    options.strategy = "exhaustive";
    options.clock_seconds = [this] { return clock_.seconds(); };
  }
  VirtualSession(RecordedSpace space, std::string_view noise, std::uint64_t seed = 1)
      : VirtualSession(std::move(space), parse_noise(noise).value(), seed) {}

  Result<TuningResult> run() {
    auto strategy = make_strategy(options.strategy, search_space_, options.random_seed);
    if (!strategy) return strategy.error();
    TrialLog log{{}};
    const SearchInput input{.candidates = candidates_.all(),
                            .space = search_space_,
                            .profile = profile_,
                            .strategy = **strategy,
                            .queue = queue_,
                            .runner = runner_,
                            .log = log,
                            .problem = space_.name,
                            .started = -options.budget.opening_seconds};
    return run_search(input, options);
  }

  const RecordedSpace& space() const { return space_; }
  double seconds() const { return clock_.seconds(); }
  int epoch() const { return runner_.epoch(); }
  std::size_t index_of(const Choice& choice) const { return *candidates_.find(choice.id()); }
  std::size_t winner(const TuningRecord& record) const { return index_of(record.winner.choice); }
  /// How much slower than the best the record's winner is in truth, between others.
  double regret(const TuningRecord& record) const {
    return space_.configurations[winner(record)].truth_us / space_.best_us() - 1;
  }

  TuningOptions options;

 private:
  RecordedSpace space_;
  BareCandidates candidates_{space_};
  SearchSpace search_space_ = make_search_space(space_);
  DeviceProfile profile_ = find_profile("h200").value();
  VirtualClock clock_;
  SimulatedRunner runner_;
  VirtualCompileQueue queue_;
};

}  // namespace kernwright
