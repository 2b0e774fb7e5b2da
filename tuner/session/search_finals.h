#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cache/records/record.h"
#include "model/candidate/candidate.h"
#include "model/result/trial.h"
#include "tuner/finals/race.h"
#include "tuner/session/survivors.h"

namespace kernwright {

struct FinalsInput {
  std::span<const Candidate> candidates;
  std::size_t default_index = 0;
  std::optional<std::size_t> incumbent;
  Runner& runner;
  RaceOptions race;
  /// Is told of every trial that ends here. An error that it returns ends the finals.
  std::function<Result<void>(std::size_t trial, const Runner::Step& step)> fail;
};

struct FinalsResult {
  struct Entry {
    std::size_t trial = 0;
    RankedConfiguration ranked;
    CompiledCandidate compiled;
  };
  std::vector<Entry> finalists;  ///< entry i belongs to finalist i of the race
  RaceResult race;
  Result<LaunchPaths> launch_paths = LaunchPaths{};  ///< of the winner, or why they are not known
};

/// Lets the survivors race, with the default and the incumbent among them. It puts what was found
/// into the trials of the finalists: their samples, and the proof that they are right. Afterwards
/// all survivors are unloaded. Errors: the runner's own, and those of `fail`.
Result<FinalsResult> run_finals(const FinalsInput& input, Survivors& survivors,
                                std::vector<Trial>& trials);

}  // namespace kernwright
