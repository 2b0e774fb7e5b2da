#include "tuner/candidates/family_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "support/processes/threads.h"

namespace kernwright {
namespace {

/// Sizes at which times are estimated for the table: of one range, between which steps are looked
/// for, and of several.
constexpr int kEstimates = 384;
constexpr int kEstimatesOfSeveral = 1536;
/// A value that differs sets two choices as far apart as these octaves, squared, set two sizes.
constexpr double kOfValue = 0.5;
/// The square of a distance in octaves that is none.
constexpr double kNoDistance = 1e-3;
/// What choices of all templates took counts like one of the same template at this distance,
/// squared: it says the least, unless nothing else says anything.
constexpr double kPrior = 9;
/// How much a further choice must take from the mean of the costs.
constexpr double kLeastFamilyGain = 2e-4;
/// How much an exchange must take from it.
constexpr double kLeastExchange = 1e-5;
/// How many times the best a choice must take for a step to be looked for.
constexpr double kStepLoss = 1.03;
/// How much a split of the table must gain: 1 % at ten sizes.
constexpr double kLeastSplit = 0.01;
/// The loss of a choice at a size at which it cannot run.
constexpr double kCannotRun = 8;

/// Returns what a loss costs. One size at which a kernel takes twice as long is worse than ten at
/// which one takes a tenth longer.
double cost_of(double loss) {
  const double log = std::log(loss);
  return log * (0.1 + log);
}

double best_of(const FamilyRow& row) {
  double best = std::numeric_limits<double>::infinity();
  for (const double us : row.times_us) {
    if (us > 0) best = std::min(best, us);
  }
  return best;
}

/// Returns how much less a choice says of another one: infinitely if it is of another template.
double distance(const Choice& one, const Choice& other) {
  if (one.kernel_template != other.kernel_template) return std::numeric_limits<double>::infinity();
  const auto& values = one.configuration.values();
  const auto& others = other.configuration.values();
  const std::size_t both = std::min(values.size(), others.size());
  std::size_t differ = std::max(values.size(), others.size()) - both;
  for (std::size_t i = 0; i < both; ++i) {
    if (values[i].second != others[i].second) ++differ;
  }
  return kOfValue * static_cast<double>(differ);
}

/// The losses of choices at some sizes.
struct Losses {
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::vector<double>> of_choice;

  /// Adds sizes with the times of the choices there; 0 is one that is not valid.
  void add(const std::vector<std::int64_t>& at, const std::vector<double>& times_us) {
    double best = std::numeric_limits<double>::infinity();
    for (const double us : times_us) {
      if (us > 0) best = std::min(best, us);
    }
    if (std::isinf(best)) return;
    sizes.push_back(at);
    of_choice.resize(times_us.size());
    for (std::size_t c = 0; c < times_us.size(); ++c) {
      of_choice[c].push_back(times_us[c] > 0 ? times_us[c] / best : kCannotRun);
    }
  }
};

/// Estimates the losses at sizes that are spread over the ranges, and takes the rows' own.
Losses all_losses(const FamilyEstimate& estimate, const std::vector<FamilyRow>& rows,
                  const std::vector<FreeDim>& free) {
  const std::size_t choices = rows.front().times_us.size();
  struct Size {
    std::vector<std::int64_t> sizes;
    std::vector<double> times_us;
  };
  std::vector<Size> all;
  for (const FamilyRow& row : rows) all.push_back({row.sizes, row.times_us});
  // A small size counts as often as its share of the logarithmic range.
  const int spread = free.size() == 1 ? kEstimates : kEstimatesOfSeveral;
  for (const std::vector<double>& places : spread_evenly(free.size(), spread)) {
    Size& size = all.emplace_back();
    for (std::size_t d = 0; d < free.size(); ++d) size.sizes.push_back(size_at(free[d], places[d]));
    size.times_us.resize(choices);
  }
  parallel_for(all.size(), [&](std::size_t i) {
    const FamilyEstimate::At at = estimate.at(all[i].sizes);
    for (std::size_t c = 0; c < choices; ++c) {
      double& us = all[i].times_us[c];
      if (us == 0) us = at.us(c);
    }
  });
  Losses losses;
  for (const Size& size : all) losses.add(size.sizes, size.times_us);
  return losses;
}

/// Adds sizes of one range, between those that are there, until it is known where each step is at
/// which another choice becomes better.
void add_steps(Losses& losses, const FamilyEstimate& estimate,
               const std::vector<std::size_t>& kernels) {
  std::map<std::int64_t, std::vector<double>> known;
  for (std::size_t i = 0; i < losses.sizes.size(); ++i) {
    std::vector<double>& at = known[losses.sizes[i].front()];
    at.clear();
    for (const std::vector<double>& of_choice : losses.of_choice) at.push_back(of_choice[i]);
  }
  const auto look_at = [&](std::int64_t size) {
    const std::vector sizes{size};
    const FamilyEstimate::At there = estimate.at(sizes);
    std::vector<double> times;
    for (const std::size_t c : kernels) times.push_back(there.us(c));
    losses.add(sizes, times);
    std::vector<double>& at = known[size];
    for (const std::vector<double>& of_choice : losses.of_choice) at.push_back(of_choice.back());
  };
  // Returns whether the best choice of one size loses something at the other.
  const auto differ = [](const std::vector<double>& one, const std::vector<double>& other) {
    const auto best = std::ranges::min_element(one) - one.begin();
    return other[static_cast<std::size_t>(best)] > kStepLoss * std::ranges::min(other);
  };
  for (auto next = known.begin(); next != known.end();) {
    const auto at = next++;
    if (next == known.end() || next->first - at->first < 2) continue;
    if (!differ(at->second, next->second) && !differ(next->second, at->second)) continue;
    look_at(at->first + (next->first - at->first) / 2);
    next = at;
  }
}

/// The choices of a family while they are chosen.
class Selection {
 public:
  /// `losses` has a choice, and a loss of each at every size.
  explicit Selection(const std::vector<std::vector<double>>& losses) {
    for (const std::vector<double>& of_choice : losses) {
      std::vector<double>& costs = costs_.emplace_back();
      for (const double loss : of_choice) costs.push_back(cost_of(loss));
    }
    best_.assign(losses.front().size(), cost_of(kCannotRun));
  }

  void take(std::size_t choice) {
    taken_.push_back(choice);
    for (std::size_t i = 0; i < best_.size(); ++i) best_[i] = std::min(best_[i], costs_[choice][i]);
  }

  /// Takes the one that gains most, until so many are taken or a further one gains too little.
  void add_best(std::size_t most) {
    const auto sizes = static_cast<double>(best_.size());
    while (taken_.size() < std::min(most, costs_.size())) {
      const auto [gain, next] = best_addition();
      if (gain <= (taken_.empty() ? 0 : kLeastFamilyGain * sizes)) break;
      take(next);
    }
  }

  /// Takes the best ones, and then exchanges single ones as long as that gains.
  std::vector<std::size_t> choose() {
    const auto sizes = static_cast<double>(best_.size());
    add_best(DispatchTable::kMostChoices);
    for (bool exchanged = true; exchanged;) {
      exchanged = false;
      for (std::size_t i = 0; i < taken_.size(); ++i) {
        const std::size_t left = taken_[i];
        const double before = cost();
        taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(i));
        look_again();
        const auto [gain, next] = best_addition();
        const bool gains = cost() - gain < before - kLeastExchange * sizes;
        exchanged = exchanged || gains;
        taken_.insert(taken_.begin() + static_cast<std::ptrdiff_t>(i), gains ? next : left);
        look_again();
      }
    }
    return taken_;
  }

  const std::vector<std::size_t>& taken() const { return taken_; }

 private:
  double cost() const { return std::accumulate(best_.begin(), best_.end(), 0.0); }
  std::pair<double, std::size_t> best_addition() const {
    std::pair<double, std::size_t> most{0, 0};
    for (std::size_t c = 0; c < costs_.size(); ++c) {
      double gain = 0;
      for (std::size_t i = 0; i < best_.size(); ++i) gain += std::max(0.0, best_[i] - costs_[c][i]);
      if (gain > most.first) most = {gain, c};
    }
    return most;
  }
  void look_again() {
    best_.assign(best_.size(), cost_of(kCannotRun));
    for (const std::size_t choice : std::exchange(taken_, {})) take(choice);
  }

  std::vector<std::vector<double>> costs_;
  std::vector<double> best_;  ///< of those that are taken, at each size
  std::vector<std::size_t> taken_;
};

}  // namespace

std::vector<std::vector<double>> spread_evenly(std::size_t dims, int count) {
  // Multiples of these, without their whole part, fill a square or a cube evenly.
  static constexpr std::array kSteps = {0.7548776662466927, 0.5698402909980532, 0.3819660112501051,
                                        0.8191725133961645, 0.6710436067037893, 0.5497004779019703};
  std::vector<std::vector<double>> points;
  for (int i = 0; i < count; ++i) {
    std::vector<double>& point = points.emplace_back();
    for (std::size_t d = 0; d < dims; ++d) {
      const double step = (i + 1) * kSteps[d % kSteps.size()];
      point.push_back(dims == 1 ? i / std::max(count - 1.0, 1.0) : step - std::floor(step));
    }
  }
  return points;
}

std::int64_t size_at(const FreeDim& range, double place) {
  const auto first = static_cast<double>(range.first);
  const auto last = static_cast<double>(range.last);
  return std::clamp<std::int64_t>(std::llround(first * std::pow(last / first, place)), range.first,
                                  range.last);
}

FamilyEstimate::FamilyEstimate(std::span<const Choice> choices, const std::vector<FamilyRow>& rows,
                               const PredictAt& predict)
    : choices_(choices), rows_(rows), predict_(predict) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<double>& times_us = rows[r].times_us;
    for (std::size_t c = 0; c < times_us.size(); ++c) {
      const double predicted = times_us[c] > 0 ? predict(c, rows[r].sizes) : 0;
      if (predicted > 0) measured_.push_back({c, r, std::log(times_us[c] / predicted)});
    }
  }
  for (const Choice& one : choices) {
    std::vector<double>& apart = apart_.emplace_back();
    for (const Choice& other : choices) apart.push_back(distance(one, other));
  }
}

FamilyEstimate::At::At(const FamilyEstimate& of, std::span<const std::int64_t> sizes)
    : of_(of), sizes_(sizes) {
  for (const FamilyRow& row : of.rows_) {
    double& square = squares_.emplace_back(kNoDistance);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const double octaves =
          std::log2(static_cast<double>(sizes[d]) / static_cast<double>(row.sizes[d]));
      square += octaves * octaves;
    }
  }
  double sum = 0;
  double weight = 0;
  for (const Measured& one : of.measured_) {
    const double near = 1 / (squares_[one.row] * squares_[one.row]);
    sum += near * one.residual;
    weight += near;
  }
  if (weight > 0) of_all_ = sum / weight;
}

double FamilyEstimate::At::residual(const std::vector<double>& apart) const {
  constexpr double kWeight = 1 / (kPrior * kPrior);
  double sum = kWeight * of_all_;
  double weight = kWeight;
  for (const Measured& one : of_.measured_) {
    const double both = squares_[one.row] + apart[one.choice];
    const double like = 1 / (both * both);  // 0 for another template
    sum += like * one.residual;
    weight += like;
  }
  return sum / weight;
}

double FamilyEstimate::At::us(std::size_t choice) const {
  const double predicted = of_.predict_(choice, sizes_);
  return predicted > 0 ? predicted * std::exp(residual(of_.apart_[choice])) : 0;
}

double FamilyEstimate::At::us(const Choice& choice, double predicted_us) const {
  std::vector<double> apart;
  for (const Choice& other : of_.choices_) apart.push_back(distance(choice, other));
  return predicted_us * std::exp(residual(apart));
}

FamilyChoice fit_family(std::span<const Choice> choices, const std::vector<FamilyRow>& rows,
                        const std::vector<FreeDim>& free, const PredictAt& predict) {
  const FamilyEstimate estimate(choices, rows, predict);
  Losses losses = all_losses(estimate, rows, free);
  FamilyChoice family{.kernels = Selection(losses.of_choice).choose(), .table = {}};
  Losses of_kernels{.sizes = std::move(losses.sizes), .of_choice = {}};
  for (const std::size_t choice : family.kernels) {
    of_kernels.of_choice.push_back(std::move(losses.of_choice[choice]));
  }
  if (free.size() == 1) add_steps(of_kernels, estimate, family.kernels);
  family.table = DispatchTable::fit(of_kernels.sizes, of_kernels.of_choice, kLeastSplit);
  return family;
}

std::vector<std::size_t> best_additions(const std::vector<std::vector<double>>& times_us,
                                        std::size_t given, std::size_t most) {
  Losses losses;
  for (const std::vector<double>& at : times_us) losses.add({}, at);
  if (losses.sizes.empty()) return {};
  Selection selection(losses.of_choice);
  for (std::size_t c = 0; c < given; ++c) selection.take(c);
  selection.add_best(given + most);
  return {selection.taken().begin() + static_cast<std::ptrdiff_t>(given), selection.taken().end()};
}

double regret_of(const FamilyChoice& family, const FamilyRow& row) {
  const DispatchTable::Order& order = family.table.order(row.sizes);
  for (std::size_t i = 0; i < family.kernels.size(); ++i) {
    const double us = row.times_us[family.kernels[order[i]]];
    if (us > 0) return us / best_of(row) - 1;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace kernwright
