#include "tuner/learning/boosted_trees.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tuner/learning/random_draws.h"

namespace kernwright::detail {
namespace {

constexpr std::size_t kMaxLevels = 255;
constexpr int kTrees = 60;
constexpr double kRate = 0.15;
constexpr double kRowShare = 0.8;     ///< of the rows that one tree sees
constexpr double kColumnShare = 0.7;  ///< of the columns that one level may cut, one at least
constexpr double kShrink = 1;         ///< rows worth of 0 in every leaf
constexpr double kLeastGain = 1e-12;

std::uint8_t with_bit(std::uint8_t leaf, bool bit, std::size_t place) {
  return static_cast<std::uint8_t>(leaf | ((bit ? 1U : 0U) << place));
}

}  // namespace

/// Residuals that fall on one side of a cut.
struct BoostedTrees::Sum {
  double total = 0;
  double count = 0;

  void add(const Sum& other) {
    total += other.total;
    count += other.count;
  }
  Sum minus(const Sum& other) const { return {total - other.total, count - other.count}; }
  /// What one shrunk mean for all of them takes off the squared error.
  double score() const { return total * total / (count + kShrink); }
};

/// The rows that trees are fitted to.
struct BoostedTrees::Fit {
  std::size_t columns = 0;
  std::vector<std::size_t> levels;     ///< per column
  std::vector<std::uint8_t> ordinals;  ///< column by column
  std::vector<double> residual;
  std::vector<std::uint8_t> leaf;    ///< of the tree in hand
  std::vector<Sum> part;             ///< in the tree in hand: nothing, or its residual
  std::vector<std::size_t> offered;  ///< columns that the level in hand may cut
};

FeatureTable::FeatureTable(const std::vector<std::vector<double>>& rows) : rows_(rows.size()) {
  const std::size_t columns = rows.empty() ? 0 : rows.front().size();
  std::vector<double> values;
  for (std::size_t c = 0; c < columns; ++c) {
    values.clear();
    bool missing = false;
    for (const auto& row : rows) {
      if (std::isnan(row[c])) {
        missing = true;
      } else {
        values.push_back(row[c]);
      }
    }
    std::sort(values.begin(), values.end());
    std::vector<double> distinct = values;
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    if (distinct.size() + (missing ? 1 : 0) < 2) continue;
    if (distinct.size() > kMaxLevels - 1) {
      distinct.clear();
      for (std::size_t q = 1; q < kMaxLevels; ++q) {
        distinct.push_back(values[q * (values.size() - 1) / (kMaxLevels - 1)]);
      }
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    }
    for (const auto& row : rows) {
      std::size_t ordinal = 0;
      if (!std::isnan(row[c])) {
        const auto place = std::lower_bound(distinct.begin(), distinct.end(), row[c]);
        ordinal = static_cast<std::size_t>(place - distinct.begin()) + (missing ? 1 : 0);
      }
      ordinals_.push_back(static_cast<std::uint8_t>(ordinal));
    }
    levels_.push_back(distinct.size() + (missing ? 1 : 0));
  }
}

void BoostedTrees::fit(const FeatureTable& features, std::span<const std::size_t> rows,
                       std::span<const double> targets, std::uint64_t seed) {
  RandomDraws draws(seed);
  const auto chance = [&draws] { return static_cast<double>(draws.bits() >> 11U) * 0x1p-53; };
  const std::size_t n = rows.size();
  Fit fit;
  fit.columns = features.columns();
  fit.ordinals.resize(fit.columns * n);
  for (std::size_t c = 0; c < fit.columns; ++c) {
    const std::uint8_t* column = features.column(c);
    for (std::size_t i = 0; i < n; ++i) fit.ordinals[c * n + i] = column[rows[i]];
    fit.levels.push_back(features.levels(c));
  }
  base_ = std::accumulate(targets.begin(), targets.end(), 0.0) / static_cast<double>(n);
  for (const double target : targets) fit.residual.push_back(target - base_);
  fit.leaf.resize(n);
  fit.part.resize(n);

  trees_.clear();
  columns_.clear();
  for (int t = 0; t < kTrees; ++t) {
    std::fill(fit.leaf.begin(), fit.leaf.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < n; ++i) {
      fit.part[i] = chance() < kRowShare ? Sum{fit.residual[i], 1} : Sum{};
    }
    Tree tree;
    while (tree.cuts.size() < kDepth) {
      fit.offered.clear();
      for (std::size_t c = 0; c < fit.columns; ++c) {
        if (chance() < kColumnShare) fit.offered.push_back(c);
      }
      if (fit.offered.empty() && fit.columns > 0) fit.offered.push_back(draws.below(fit.columns));
      const auto cut = best_cut(fit, std::size_t{1} << tree.cuts.size(), draws);
      if (!cut) break;
      const std::uint8_t* ordinal = fit.ordinals.data() + cut->column * n;
      for (std::size_t i = 0; i < n; ++i) {
        fit.leaf[i] = with_bit(fit.leaf[i], ordinal[i] > cut->level, tree.cuts.size());
      }
      tree.cuts.push_back(*cut);
    }
    if (tree.cuts.empty()) continue;
    std::array<Sum, kLeaves> sums{};
    for (std::size_t i = 0; i < n; ++i) sums[fit.leaf[i]].add(fit.part[i]);
    for (std::size_t l = 0; l < kLeaves; ++l) {
      tree.leaves[l] = kRate * sums[l].total / (sums[l].count + kShrink);
    }
    for (std::size_t i = 0; i < n; ++i) fit.residual[i] -= tree.leaves[fit.leaf[i]];
    for (const Cut& cut : tree.cuts) columns_.push_back(cut.column);
    trees_.push_back(std::move(tree));
  }
  std::sort(columns_.begin(), columns_.end());
  columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
}

/// The cut of all nodes of a level that leaves the least squared error; none where nothing helps.
std::optional<BoostedTrees::Cut> BoostedTrees::best_cut(const Fit& fit, std::size_t nodes,
                                                        RandomDraws& draws) {
  const std::size_t n = fit.residual.size();
  std::optional<Cut> best;
  double best_gain = kLeastGain;
  std::vector<Sum> histogram;
  std::vector<double> gain;
  for (const std::size_t c : fit.offered) {
    const std::size_t levels = fit.levels[c];
    histogram.assign(nodes * levels, {});
    const std::uint8_t* ordinal = fit.ordinals.data() + c * n;
    for (std::size_t i = 0; i < n; ++i) {
      histogram[fit.leaf[i] * levels + ordinal[i]].add(fit.part[i]);
    }
    gain.assign(levels - 1, 0.0);
    for (std::size_t node = 0; node < nodes; ++node) {
      const Sum* sums = histogram.data() + node * levels;
      Sum all;
      for (std::size_t l = 0; l < levels; ++l) all.add(sums[l]);
      Sum low;
      double own = 0;
      for (std::size_t l = 0; l + 1 < levels; ++l) {
        if (sums[l].count > 0) {
          low.add(sums[l]);
          own = low.score() + all.minus(low).score() - all.score();
        }
        gain[l] += own;
      }
    }
    const auto highest = std::max_element(gain.begin(), gain.end());
    if (*highest <= best_gain) continue;
    best_gain = *highest;
    // Cuts through a gap between rows are all as good: a drawn one makes the trees of an ensemble
    // change from one side to the other gradually.
    const auto end = std::find_if(highest, gain.end(), [&](double g) { return g != *highest; });
    const auto within =
        static_cast<std::ptrdiff_t>(draws.below(static_cast<std::size_t>(end - highest)));
    best = {c, static_cast<std::uint8_t>(highest - gain.begin() + within)};
  }
  return best;
}

std::vector<double> BoostedTrees::predict(const FeatureTable& features,
                                          std::span<const std::size_t> rows) const {
  std::vector<double> predictions(rows.size(), base_);
  constexpr std::size_t kBlock = 1024;
  std::array<std::uint8_t, kBlock> leaf{};
  std::vector<std::uint8_t> ordinals(features.columns() * kBlock);
  for (std::size_t begin = 0; begin < rows.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, rows.size() - begin);
    for (const std::size_t c : columns_) {
      const std::uint8_t* column = features.column(c);
      std::uint8_t* own = ordinals.data() + c * kBlock;
      for (std::size_t i = 0; i < count; ++i) own[i] = column[rows[begin + i]];
    }
    for (const Tree& tree : trees_) {
      leaf.fill(0);
      for (std::size_t depth = 0; depth < tree.cuts.size(); ++depth) {
        const std::uint8_t* ordinal = ordinals.data() + tree.cuts[depth].column * kBlock;
        const std::uint8_t level = tree.cuts[depth].level;
        const auto bit = static_cast<std::uint8_t>(1U << depth);
        for (std::size_t i = 0; i < kBlock; ++i) {
          leaf[i] = static_cast<std::uint8_t>(leaf[i] | (ordinal[i] > level ? bit : 0));
        }
      }
      for (std::size_t i = 0; i < count; ++i) predictions[begin + i] += tree.leaves[leaf[i]];
    }
  }
  return predictions;
}

}  // namespace kernwright::detail
