#include "tuner/candidates/family_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace kernwright {
namespace {

/// Sizes at which times are estimated for the table.
constexpr int kEstimates = 384;
/// Rows nearby that say how much longer than predicted a choice takes, for each dim.
constexpr std::size_t kNearRows = 2;
/// How much a further choice must take from the mean of the costs.
constexpr double kLeastFamilyGain = 2e-4;
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

/// The losses of all choices at some sizes.
struct Losses {
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::vector<double>> of_choice;
};

class Estimate {
 public:
  Estimate(const std::vector<FamilyRow>& rows, const PredictAt& predict)
      : rows_(rows), predict_(predict), dims_(rows.front().sizes.size()) {
    for (const FamilyRow& row : rows) {
      std::vector<double>& of = residuals_.emplace_back();
      for (std::size_t c = 0; c < row.times_us.size(); ++c) {
        const double predicted = row.times_us[c] > 0 ? predict(c, row.sizes) : 0;
        of.push_back(predicted > 0 ? std::log(row.times_us[c] / predicted)
                                   : std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  /// Returns the time of a choice at these sizes, in microseconds, or 0 if it is not valid there.
  double us(std::size_t choice, const std::vector<std::int64_t>& sizes) const {
    const double predicted = predict_(choice, sizes);
    if (predicted <= 0) return 0;
    std::vector<std::pair<double, double>> near;  // squares of distances, residuals
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (std::isnan(residuals_[r][choice])) continue;
      double square = 0;
      for (std::size_t d = 0; d < dims_; ++d) {
        const double apart =
            std::log2(static_cast<double>(sizes[d]) / static_cast<double>(rows_[r].sizes[d]));
        square += apart * apart;
      }
      near.emplace_back(square, residuals_[r][choice]);
    }
    if (near.empty()) return 0;  // nothing says how far the prediction is off
    const auto most = static_cast<std::ptrdiff_t>(std::min(near.size(), kNearRows * dims_));
    std::ranges::partial_sort(near, near.begin() + most);
    double sum = 0;
    double weights = 0;
    for (auto one = near.begin(); one != near.begin() + most; ++one) {
      const double weight = 1 / (one->first + 1e-6);
      sum += weight * one->second;
      weights += weight;
    }
    return predicted * std::exp(sum / weights);
  }

 private:
  const std::vector<FamilyRow>& rows_;
  const PredictAt& predict_;
  std::size_t dims_;
  std::vector<std::vector<double>> residuals_;
};

/// Estimates the losses at sizes that are spread over the ranges, and takes the rows' own.
Losses all_losses(const std::vector<FamilyRow>& rows, const std::vector<FreeDim>& free,
                  const PredictAt& predict) {
  const Estimate estimate(rows, predict);
  const std::size_t choices = rows.front().times_us.size();
  Losses losses;
  losses.of_choice.resize(choices);
  const auto add = [&](const std::vector<std::int64_t>& sizes, const std::vector<double>& times) {
    double best = std::numeric_limits<double>::infinity();
    for (const double us : times) {
      if (us > 0) best = std::min(best, us);
    }
    if (std::isinf(best)) return;
    losses.sizes.push_back(sizes);
    for (std::size_t c = 0; c < choices; ++c) {
      losses.of_choice[c].push_back(times[c] > 0 ? times[c] / best : kCannotRun);
    }
  };
  for (const FamilyRow& row : rows) {
    std::vector<double> times = row.times_us;
    for (std::size_t c = 0; c < choices; ++c) {
      if (times[c] == 0) times[c] = estimate.us(c, row.sizes);
    }
    add(row.sizes, times);
  }
  // A small size counts as often as its share of the logarithmic range.
  for (const std::vector<double>& places : spread_evenly(free.size(), kEstimates)) {
    std::vector<std::int64_t> sizes;
    for (std::size_t d = 0; d < free.size(); ++d) sizes.push_back(size_at(free[d], places[d]));
    std::vector<double> times;
    for (std::size_t c = 0; c < choices; ++c) times.push_back(estimate.us(c, sizes));
    add(sizes, times);
  }
  return losses;
}

/// Returns the choices, the one that gains most first, until a further one gains too little.
std::vector<std::size_t> greedy(const Losses& losses) {
  std::vector<std::size_t> taken;
  std::vector<double> best(losses.sizes.size(), cost_of(kCannotRun));
  while (taken.size() < std::min(DispatchTable::kMostChoices, losses.of_choice.size())) {
    std::size_t next = 0;
    double most = 0;
    for (std::size_t c = 0; c < losses.of_choice.size(); ++c) {
      double gain = 0;
      for (std::size_t i = 0; i < best.size(); ++i) {
        gain += std::max(0.0, best[i] - cost_of(losses.of_choice[c][i]));
      }
      if (gain > most) {
        most = gain;
        next = c;
      }
    }
    if (most <= 0 ||
        (!taken.empty() && most < kLeastFamilyGain * static_cast<double>(best.size()))) {
      break;
    }
    taken.push_back(next);
    for (std::size_t i = 0; i < best.size(); ++i) {
      best[i] = std::min(best[i], cost_of(losses.of_choice[next][i]));
    }
  }
  return taken;
}

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

std::vector<double> estimate_us(const std::vector<FamilyRow>& rows, const PredictAt& predict,
                                const std::vector<std::int64_t>& sizes) {
  const Estimate estimate(rows, predict);
  std::vector<double> times;
  for (std::size_t c = 0; c < rows.front().times_us.size(); ++c) {
    times.push_back(estimate.us(c, sizes));
  }
  return times;
}

FamilyChoice fit_family(const std::vector<FamilyRow>& rows, const std::vector<FreeDim>& free,
                        const PredictAt& predict) {
  const Losses losses = all_losses(rows, free, predict);
  FamilyChoice family{.kernels = greedy(losses), .table = {}};
  std::vector<std::vector<double>> of_kernels;
  for (const std::size_t choice : family.kernels) {
    of_kernels.push_back(losses.of_choice[choice]);
  }
  family.table = DispatchTable::fit(losses.sizes, of_kernels, kLeastSplit);
  return family;
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
