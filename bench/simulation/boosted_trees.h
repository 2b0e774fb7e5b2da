#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tuner/cost/correction.h"

namespace kernwright {

/// One example of what trees learn: terms, what they should say of it, how much it counts, and the
/// group that it belongs to: examples of one group tell little of each other's neighbours.
struct Example {
  std::vector<double> terms;
  double target = 0;
  double weight = 1;
  int group = 0;
};

struct BoostingOptions {
  int trees = 250;
  int leaves = 24;
  double rate = 0.06;            ///< of what a tree says
  double least_weight = 3;       ///< of the examples of a leaf
  double resistance = 2;         ///< weight of an example of 0 in every leaf
  double share_of_groups = 0.6;  ///< that each tree sees, drawn anew
  double share_of_terms = 0.5;   ///< likewise
  std::uint64_t seed = 1;
};

/// Regression trees whose sum approximates the targets by weighted least squares, each fitted to
/// what those before it leave (gradient boosting). `examples` have equally many terms. The same
/// input gives the same trees.
std::vector<Correction::Tree> boosted_trees(std::span<const Example> examples,
                                            const BoostingOptions& options);

}  // namespace kernwright
