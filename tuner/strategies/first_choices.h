#pragma once

#include <cstddef>
#include <vector>

#include "tuner/strategies/search_strategy.h"

namespace kernwright::detail {

/// Returns whether the cost model tells the candidates apart: every prediction is a time, and not
/// all are equal.
bool has_predictions(const SearchSpace& space);

/// All candidates, the fastest predicted first; equal predictions in the order of the space.
std::vector<std::size_t> by_prediction(const SearchSpace& space);

/// Returns the cost model's first choices, at most `count`, one for each shared compile. The
/// fastest predicted comes first. Each choice then holds the others of its template back, and more
/// so those that are nearly the same, since the model may be wrong about all of them. The last ones
/// go to the fastest of each template that would have none, if it is not predicted to be half as
/// slow again as the fastest of all. None is predicted to be `kHopeless` times slower. The result
/// is empty if the model does not tell candidates apart.
std::vector<std::size_t> first_choices(const SearchSpace& space, std::size_t count);

}  // namespace kernwright::detail
