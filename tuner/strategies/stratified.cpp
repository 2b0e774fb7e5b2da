#include "tuner/strategies/stratified.h"

#include <limits>

namespace kernwright::detail {
namespace {

constexpr int kDraws = 8;

}  // namespace

std::optional<std::size_t> StratifiedDraws::next(RandomDraws& draws,
                                                 const std::function<bool(std::size_t)>& allowed) {
  std::optional<std::size_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (int draw = 0; draw < kDraws; ++draw) {
    const std::size_t candidate = draws.below(candidates_);
    if (!allowed(candidate)) continue;
    const double crowded = crowding(candidate);
    if (crowded >= least) continue;
    least = crowded;
    best = candidate;
  }
  if (!best) return best;
  auto& used = used_[neighbourhood_.template_of(*best)];
  for (std::size_t p = 0; p < used.size(); ++p) used[p][neighbourhood_.point(*best)[p]] += 1;
  return best;
}

/// How often its values were drawn, as shares of what would be even.
double StratifiedDraws::crowding(std::size_t candidate) {
  auto& used = used_[neighbourhood_.template_of(candidate)];
  if (used.empty()) {
    for (std::size_t p = 0; p < neighbourhood_.dimensions(candidate); ++p) {
      used.emplace_back(neighbourhood_.values(candidate, p), 0.0);
    }
  }
  double sum = 0;
  for (std::size_t p = 0; p < used.size(); ++p) {
    sum += used[p][neighbourhood_.point(candidate)[p]] * static_cast<double>(used[p].size());
  }
  return sum;
}

}  // namespace kernwright::detail
