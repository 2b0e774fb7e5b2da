#include "model/candidate/dispatch_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "support/text.h"

namespace kernwright {

/// Grows the tree from its root until each leaf has one best choice, and takes back the splits that
/// gain too little.
class DispatchTable::Fitting {
 public:
  Fitting(const std::vector<std::vector<std::int64_t>>& sizes,
          const std::vector<std::vector<double>>& losses, double least_gain)
      : sizes_(sizes), choices_(losses.size()), least_gain_(least_gain) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Sample& sample = samples_.emplace_back();
      for (std::size_t c = 0; c < choices_; ++c) {
        const double loss = std::log(losses[c][i]);
        sample.costs[c] = loss * (0.1 + loss);  // one that is twice as long is worse than ten
      }
      double next = std::numeric_limits<double>::infinity();
      for (std::size_t c = 1; c < choices_; ++c) {
        const bool better = sample.costs[c] < sample.costs[sample.best];
        next = std::min(next, sample.costs[better ? sample.best : c]);
        if (better) sample.best = c;
      }
      if (choices_ > 1) sample.weight = next - sample.costs[sample.best];
    }
  }

  DispatchTable grow() {
    std::vector<std::size_t> all(sizes_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    add(std::move(all), 0);
    return std::move(table_);
  }

 private:
  static constexpr int kMostLevels = 40;

  using Costs = std::array<double, kMostChoices>;
  struct Sample {
    Costs costs{};
    std::size_t best = 0;
    double weight = 0;  ///< how much its best choice is better than all others
  };
  /// The weights of samples by their best choice.
  struct Mix {
    Costs weights{};
    double sum = 0;

    void add(const Sample& sample, double times) {
      weights[sample.best] += times * sample.weight;
      sum += times * sample.weight;
    }
    /// Returns Gini's impurity, times the sum. Unlike the cost of the best choice it falls with
    /// every split that sets an end of an interval apart.
    double impurity() const {
      double squares = 0;
      for (const double weight : weights) squares += weight * weight;
      return sum > 0 ? sum - squares / sum : 0;
    }
  };
  struct Split {
    double impurity;
    std::size_t dim = 0;
    std::int64_t at_most = 0;
  };

  std::optional<Split> best_split(std::vector<std::size_t>& samples) const {
    Mix all;
    for (const std::size_t i : samples) all.add(samples_[i], 1);
    const double enough = all.impurity() * (1 - 1e-9);
    Split best{.impurity = enough};
    for (std::size_t dim = 0; dim < sizes_.front().size(); ++dim) {
      std::ranges::sort(samples, {}, [&](std::size_t i) { return sizes_[i][dim]; });
      Mix below;
      Mix above = all;
      for (std::size_t s = 0; s + 1 < samples.size(); ++s) {
        below.add(samples_[samples[s]], 1);
        above.add(samples_[samples[s]], -1);
        const std::int64_t last = sizes_[samples[s]][dim];
        const std::int64_t next = sizes_[samples[s + 1]][dim];
        if (last == next) continue;
        const double impurity = below.impurity() + above.impurity();
        if (impurity < best.impurity) {
          best = {.impurity = impurity, .dim = dim, .at_most = last + (next - last) / 2};
        }
      }
    }
    return best.impurity < enough ? std::optional(best) : std::nullopt;
  }

  /// Adds a tree for these samples. Returns the sum of their costs.
  double add(std::vector<std::size_t> samples, int level) {
    Costs sum{};
    for (const std::size_t i : samples) {
      for (std::size_t c = 0; c < choices_; ++c) sum[c] += samples_[i].costs[c];
    }
    Order order{};
    std::iota(order.begin(), order.end(), std::uint8_t{0});
    std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(choices_),
                     [&](std::uint8_t a, std::uint8_t b) { return sum[a] < sum[b]; });
    const double of_leaf = sum[order[0]];
    const std::size_t node = table_.nodes_.size();
    const std::size_t leaf = table_.orders_.size();
    table_.nodes_.emplace_back();
    if (const auto split = level < kMostLevels ? best_split(samples) : std::nullopt) {
      const auto above = std::ranges::partition(
          samples, [&](std::size_t i) { return sizes_[i][split->dim] <= split->at_most; });
      std::vector<std::size_t> larger(above.begin(), above.end());
      samples.erase(above.begin(), above.end());
      double of_split = add(std::move(samples), level + 1);
      table_.nodes_[node] = {.dim = static_cast<std::int32_t>(split->dim),
                             .next = static_cast<std::uint32_t>(table_.nodes_.size()),
                             .at_most = split->at_most};
      of_split += add(std::move(larger), level + 1);
      if (of_split < of_leaf - least_gain_) return of_split;
    }
    table_.nodes_.resize(node);
    table_.orders_.resize(leaf);
    table_.nodes_.push_back({.next = static_cast<std::uint32_t>(leaf)});
    table_.orders_.push_back(order);
    return of_leaf;
  }

  const std::vector<std::vector<std::int64_t>>& sizes_;
  std::size_t choices_;
  double least_gain_;
  std::vector<Sample> samples_;
  DispatchTable table_;
};

DispatchTable DispatchTable::fit(const std::vector<std::vector<std::int64_t>>& sizes,
                                 const std::vector<std::vector<double>>& losses,
                                 double least_gain) {
  return Fitting(sizes, losses, least_gain).grow();
}

DispatchTable::Form DispatchTable::form(std::size_t choices) const {
  Form form;
  for (const Node& node : nodes_) {
    form.dims.push_back(node.dim);
    form.at_most.push_back(node.at_most);
    form.next.push_back(static_cast<int>(node.next));
  }
  for (const Order& order : orders_) {
    form.orders.insert(form.orders.end(), order.begin(),
                       order.begin() + static_cast<std::ptrdiff_t>(choices));
  }
  return form;
}

DispatchTable DispatchTable::always(std::size_t choices) {
  DispatchTable table;
  table.nodes_.emplace_back();
  Order& order = table.orders_.emplace_back();
  for (std::size_t i = 0; i < choices; ++i) order[i] = static_cast<std::uint8_t>(i);
  return table;
}

Result<DispatchTable> DispatchTable::from(const Form& form, std::size_t dims, std::size_t choices) {
  const auto wrong = [](std::string_view what) {
    return Error{ErrorCode::corrupt, concat("a dispatch table ", what)};
  };
  const std::size_t nodes = form.dims.size();
  if (nodes == 0 || form.at_most.size() != nodes || form.next.size() != nodes) {
    return wrong("whose nodes are not whole");
  }
  if (choices == 0 || choices > kMostChoices || form.orders.size() % choices != 0) {
    return wrong("whose leaves are not whole");
  }
  DispatchTable table;
  for (std::size_t leaf = 0; leaf < form.orders.size(); leaf += choices) {
    Order& order = table.orders_.emplace_back();
    std::array<bool, kMostChoices> has{};
    for (std::size_t i = 0; i < choices; ++i) {
      const int choice = form.orders[leaf + i];
      if (choice < 0 || static_cast<std::size_t>(choice) >= choices ||
          std::exchange(has[static_cast<std::size_t>(choice)], true)) {
        return wrong(concat("with choice ", choice, " of ", choices, " where none belongs"));
      }
      order[i] = static_cast<std::uint8_t>(choice);
    }
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    const bool is_leaf = form.dims[i] < 0;
    const auto next = static_cast<std::size_t>(form.next[i]);
    // Later nodes alone, so that every way ends.
    const bool leads =
        form.next[i] >= 0 && (is_leaf ? next < table.orders_.size() : next > i + 1 && next < nodes);
    if (!leads || (!is_leaf && static_cast<std::size_t>(form.dims[i]) >= dims)) {
      return wrong(concat("whose node ", i, " leads nowhere"));
    }
    table.nodes_.push_back({.dim = is_leaf ? -1 : form.dims[i],
                            .next = static_cast<std::uint32_t>(next),
                            .at_most = form.at_most[i]});
  }
  return table;
}

const DispatchTable::Order& DispatchTable::order(std::span<const std::int64_t> sizes) const {
  std::size_t node = 0;
  while (nodes_[node].dim >= 0) {
    const Node& at = nodes_[node];
    node = sizes[static_cast<std::size_t>(at.dim)] <= at.at_most ? node + 1 : at.next;
  }
  return orders_[nodes_[node].next];
}

}  // namespace kernwright
