#include "tuner/strategies/process_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_set>

namespace kernwright::detail {
namespace {

constexpr std::size_t kFewest = 8;  ///< results that a picture can be made of
constexpr std::size_t kRows = 160;
constexpr std::size_t kPool = 1000;
constexpr std::size_t kAround = 5;     ///< the best whose neighbours are in the pool
constexpr std::size_t kFarAround = 2;  ///< the best whose neighbours' neighbours are too
constexpr std::size_t kOfTrees = 100;
constexpr std::size_t kAtRandom = 200;
constexpr std::size_t kExact = 128;  ///< of the pool, whose deviation is worked out
constexpr std::size_t kChosen = 8;   ///< at a time
/// Steps of adapting the process per fit; each costs the cube of the rows, so that fewer are taken
/// of many.
constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kFewestSteps = 16;
constexpr std::size_t kCheapRows = 64;
/// Slower than the best by this (in logarithms) is all the same.
constexpr double kClip = 0.8;
/// An improvement by less is none.
constexpr double kLeastGain = 0.005;

/// How much less than 0 it is expected to be.
double expected_gain(const GaussianProcess::Estimate& estimate) {
  const double gain = -kLeastGain - estimate.mean;
  const double z = gain / estimate.deviation;
  const double below = std::erfc(-z / std::numbers::sqrt2) / 2;
  const double density = std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return estimate.deviation * (z * below + density);
}

}  // namespace

ProcessSearch::ProcessSearch(const FeatureTable& parameters, const Neighbourhood& neighbourhood,
                             const Board& board, const TreeModel& trees, std::uint64_t seed)
    : neighbourhood_(neighbourhood),
      board_(board),
      trees_(trees),
      draws_(seed),
      process_(parameters),
      parameters_(parameters.columns()) {}

void ProcessSearch::fit() {
  queue_.clear();
  std::vector<std::size_t> rows;
  for (const std::size_t i : board_.results()) {
    if (board_.ok(i)) rows.push_back(i);
  }
  if (rows.size() < kFewest) return;
  std::sort(rows.begin(), rows.end(), [this](std::size_t a, std::size_t b) {
    return board_.log_us(a) != board_.log_us(b) ? board_.log_us(a) < board_.log_us(b) : a < b;
  });
  const std::vector<std::size_t> best(
      rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kAround)));
  if (rows.size() > kRows) {
    // The best half, and an even selection of the others.
    constexpr std::size_t kHalf = kRows / 2;
    const std::size_t others = rows.size() - kHalf;
    for (std::size_t k = 0; k < kHalf; ++k) rows[kHalf + k] = rows[kHalf + k * others / kHalf];
    rows.resize(kRows);
  }
  std::vector<double> targets;
  for (const std::size_t i : rows) {
    targets.push_back(std::min(board_.log_us(i) - board_.best_log_us(), kClip));
  }
  const std::size_t once = 4 * parameters_ + 4;  // each number larger and smaller
  const std::size_t steps = std::clamp(
      kMostSteps * kCheapRows * kCheapRows / (rows.size() * rows.size()), kFewestSteps, kMostSteps);
  process_.fit(rows, targets, static_cast<int>(adapted_ ? steps : std::max(once, steps)));
  adapted_ = true;
  choose(pool(best));
}

std::vector<std::size_t> ProcessSearch::pool(const std::vector<std::size_t>& best) {
  std::vector<std::size_t> pool;
  std::unordered_set<std::size_t> in;
  const auto add = [&](std::size_t i) {
    if (pool.size() < kPool && !board_.taken(i) && in.insert(i).second) pool.push_back(i);
  };
  for (const std::size_t i : best) {
    for (const std::size_t near : neighbourhood_.of(i)) add(near);
  }
  for (const std::size_t i : trees_.best(kOfTrees)) add(i);
  for (std::size_t k = 0; k < kAtRandom; ++k) add(draws_.below(board_.size()));
  for (std::size_t k = 0; k < std::min(best.size(), kFarAround); ++k) {
    for (const std::size_t near : neighbourhood_.of(best[k])) {
      for (const std::size_t far : neighbourhood_.of(near)) add(far);
    }
  }
  const std::vector<bool> failing = trees_.fails(pool);
  std::vector<std::size_t> kept;
  for (std::size_t k = 0; k < pool.size(); ++k) {
    if (!failing[k]) kept.push_back(pool[k]);
  }
  return kept;
}

void ProcessSearch::choose(const std::vector<std::size_t>& pool) {
  struct Bounded {
    std::size_t candidate;
    double gain;
  };
  std::vector<Bounded> bounded;
  for (const std::size_t i : pool) {
    const auto bound = process_.bound(i);
    if (bound.mean < kHopelessLog) bounded.push_back({i, expected_gain(bound)});
  }
  const std::size_t exact = std::min(bounded.size(), kExact);
  std::partial_sort(bounded.begin(), bounded.begin() + static_cast<std::ptrdiff_t>(exact),
                    bounded.end(), [](const Bounded& a, const Bounded& b) {
                      return a.gain != b.gain ? a.gain > b.gain : a.candidate < b.candidate;
                    });
  struct Option {
    std::size_t candidate;
    GaussianProcess::Outlook outlook;
  };
  std::vector<Option> options;
  for (std::size_t k = 0; k < exact; ++k) {
    options.push_back({bounded[k].candidate, process_.outlook(bounded[k].candidate)});
  }
  while (queue_.size() < kChosen && !options.empty()) {
    std::vector<double> gain;
    for (const Option& option : options) gain.push_back(expected_gain(option.outlook.estimate()));
    const auto most = std::max_element(gain.begin(), gain.end()) - gain.begin();
    const Option chosen = options[static_cast<std::size_t>(most)];
    options.erase(options.begin() + most);
    for (Option& option : options) option.outlook.suppose(chosen.outlook);
    queue_.push_back(chosen.candidate);
  }
}

std::optional<std::size_t> ProcessSearch::next() {
  while (!queue_.empty()) {
    const std::size_t next = queue_.front();
    queue_.pop_front();
    if (!board_.taken(next)) return next;
  }
  return std::nullopt;
}

}  // namespace kernwright::detail
