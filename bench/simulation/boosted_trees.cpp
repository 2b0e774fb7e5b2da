#include "bench/simulation/boosted_trees.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

namespace kernwright {
namespace {

constexpr int kBins = 64;

/// Returns the edges at which a term is cut into bins: a value is in the first bin whose edge is
/// not below it.
std::vector<double> edges_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> edges;
  for (std::size_t bin = 1; bin < kBins; ++bin) {
    const std::size_t place = bin * values.size() / kBins;
    if (place == 0 || values[place - 1] == values[place]) continue;
    const double edge = (values[place - 1] + values[place]) / 2;
    if (edges.empty() || edge > edges.back()) edges.push_back(edge);
  }
  // Values that are few and often the same have their edges beside their quantiles.
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() <= kBins) {
    edges.clear();
    for (std::size_t i = 1; i < values.size(); ++i) {
      edges.push_back((values[i - 1] + values[i]) / 2);
    }
  }
  return edges;
}

struct Sum {
  double weight = 0;
  double target = 0;  ///< weighted

  void add(const Sum& other) {
    weight += other.weight;
    target += other.target;
  }
};

struct Split {
  double gain = 0;
  std::size_t term = 0;
  int bin = 0;
};

class Booster {
 public:
  Booster(std::span<const Example> examples, const BoostingOptions& options)
      : examples_(examples), options_(options), random_(options.seed) {
    const std::size_t terms = examples.empty() ? 0 : examples.front().terms.size();
    for (std::size_t term = 0; term < terms; ++term) {
      std::vector<double> values;
      for (const Example& example : examples) values.push_back(example.terms[term]);
      edges_.push_back(edges_of(std::move(values)));
      std::vector<std::uint8_t>& bins = bins_.emplace_back();
      for (const Example& example : examples) {
        const auto& edges = edges_.back();
        bins.push_back(static_cast<std::uint8_t>(
            std::lower_bound(edges.begin(), edges.end(), example.terms[term]) - edges.begin()));
      }
    }
    for (const Example& example : examples) {
      groups_.insert(example.group);
      left_.push_back(example.target);
    }
  }

  std::vector<Correction::Tree> run() {
    std::vector<Correction::Tree> trees;
    for (int i = 0; i < options_.trees; ++i) {
      trees.push_back(grow());
      for (std::size_t e = 0; e < examples_.size(); ++e) {
        left_[e] -= value_of(trees.back(), examples_[e].terms);
      }
    }
    return trees;
  }

 private:
  struct Leaf {
    int place = 0;  ///< in the tree
    std::vector<std::uint32_t> examples;
    Sum sum;
    Split best;
  };

  /// A number in [0, 1), the same with every standard library.
  double draw() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  double score(const Sum& sum) const {
    return sum.target * sum.target / (sum.weight + options_.resistance);
  }

  Correction::Tree grow() {
    std::map<int, bool> seen;
    for (const int group : groups_) seen[group] = draw() < options_.share_of_groups;
    std::vector<std::size_t> terms;
    for (std::size_t term = 0; term < edges_.size(); ++term) {
      if (draw() < options_.share_of_terms) terms.push_back(term);
    }
    Leaf root;
    for (std::size_t e = 0; e < examples_.size(); ++e) {
      if (!seen[examples_[e].group]) continue;
      root.examples.push_back(static_cast<std::uint32_t>(e));
      root.sum.add({examples_[e].weight, examples_[e].weight * left_[e]});
    }
    root.best = best_split(root, terms);
    Correction::Tree tree(1);
    std::vector<Leaf> leaves;
    leaves.push_back(std::move(root));
    while (static_cast<int>(leaves.size()) < options_.leaves) {
      const auto widest =
          std::max_element(leaves.begin(), leaves.end(),
                           [](const Leaf& a, const Leaf& b) { return a.best.gain < b.best.gain; });
      if (widest->best.gain <= 0) break;
      Leaf parent = std::move(*widest);
      leaves.erase(widest);
      Correction::Node& node = tree[static_cast<std::size_t>(parent.place)];
      node.term = static_cast<int>(parent.best.term);
      node.threshold = edges_[parent.best.term][static_cast<std::size_t>(parent.best.bin)];
      node.below = static_cast<int>(tree.size());
      node.above = node.below + 1;
      Leaf below{node.below, {}, {}, {}};
      Leaf above{node.above, {}, {}, {}};
      tree.resize(tree.size() + 2);
      for (const std::uint32_t e : parent.examples) {
        Leaf& side = bins_[parent.best.term][e] <= parent.best.bin ? below : above;
        side.examples.push_back(e);
        side.sum.add({examples_[e].weight, examples_[e].weight * left_[e]});
      }
      for (Leaf* side : {&below, &above}) {
        side->best = best_split(*side, terms);
        leaves.push_back(std::move(*side));
      }
    }
    for (const Leaf& leaf : leaves) {
      tree[static_cast<std::size_t>(leaf.place)].value =
          options_.rate * leaf.sum.target / (leaf.sum.weight + options_.resistance);
    }
    return tree;
  }

  Split best_split(const Leaf& leaf, const std::vector<std::size_t>& terms) const {
    Split best;
    for (const std::size_t term : terms) {
      std::array<Sum, kBins> sums{};
      for (const std::uint32_t e : leaf.examples) {
        sums[bins_[term][e]].add({examples_[e].weight, examples_[e].weight * left_[e]});
      }
      Sum below;
      for (std::size_t bin = 0; bin < edges_[term].size(); ++bin) {
        below.add(sums[bin]);
        const Sum above{leaf.sum.weight - below.weight, leaf.sum.target - below.target};
        if (std::min(below.weight, above.weight) < options_.least_weight) continue;
        const double gain = score(below) + score(above) - score(leaf.sum);
        if (gain > best.gain) best = {gain, term, static_cast<int>(bin)};
      }
    }
    return best;
  }

  std::span<const Example> examples_;
  const BoostingOptions options_;
  std::mt19937_64 random_;
  std::vector<std::vector<double>> edges_;
  std::vector<std::vector<std::uint8_t>> bins_;  ///< by term and example
  std::set<int> groups_;
  std::vector<double> left_;  ///< of the targets, what no tree says yet
};

}  // namespace

std::vector<Correction::Tree> boosted_trees(std::span<const Example> examples,
                                            const BoostingOptions& options) {
  return Booster(examples, options).run();
}

}  // namespace kernwright
