#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/simulation/recorded_space.h"

namespace kernwright {

/// Shapes of synthetic landscapes. `bowl`: one optimum, parameters that interact; `plateaus`: the
/// same in steps, with many equal neighbours; `deceptive`: nearly everything leads to a wide basin
/// 10 % off, and the best is in a narrow one elsewhere; `ties`: a twentieth of the space is equally
/// fast.
enum class Landscape { bowl, plateaus, deceptive, ties };

inline constexpr Landscape kLandscapes[] = {Landscape::bowl, Landscape::plateaus,
                                            Landscape::deceptive, Landscape::ties};

std::string_view to_string(Landscape landscape);

/// A space of five parameters with six values each, `best_us` at its best, without noise. `seed`
/// places the optimum, the default and the compile times (around one second).
RecordedSpace synthetic_space(Landscape landscape, double best_us, std::uint64_t seed);

/// One configuration per gap, each slower than `best_us` by that share; the last is the default.
RecordedSpace gap_space(std::string name, double best_us, std::span<const double> gaps);

/// Returns the `best` fastest and `random` others of a space, as a space of its own; fewer if it
/// does not have as many that are ok.
RecordedSpace sub_space(const RecordedSpace& space, std::size_t best, std::size_t random,
                        std::uint64_t seed);

}  // namespace kernwright
