#include "tuner/decision.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "model/measurement.h"
#include "support/hash.h"

namespace kernwright {
namespace {

/// A difference below it is not worth another choice.
constexpr double kNegligible = 0.005;
constexpr double kDoubt = 0.01;

/// The number of pairs k such that the k-th smallest and k-th largest of n enclose the median with
/// probability 1 - kDoubt: the largest k with 2 P(Binomial(n, 1/2) < k) <= kDoubt, at least 1.
std::size_t order_statistic(std::size_t n) {
  double probability = std::pow(0.5, static_cast<double>(n));
  double below = 0;
  for (std::size_t k = 0; k < n; ++k) {
    below += probability;
    if (2 * below > kDoubt) return std::max<std::size_t>(k, 1);
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return 1;
}

double median_of(const std::vector<double>& samples_us) {
  return Measurement{samples_us}.median_us();
}

}  // namespace

Slowdown paired_slowdown(std::span<const double> samples, std::span<const double> leader) {
  std::vector<double> differences;
  differences.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    differences.push_back(std::log(samples[i] / leader[i]));
  }
  std::sort(differences.begin(), differences.end());
  const std::size_t n = differences.size();
  const std::size_t k = order_statistic(n);
  const double middle = (differences[(n - 1) / 2] + differences[n / 2]) / 2;
  return {middle, differences[k - 1], differences[n - k]};
}

std::size_t choose_winner(std::span<const Finalist> finalists) {
  const auto leader = std::min_element(finalists.begin(), finalists.end(),
                                       [](const Finalist& a, const Finalist& b) {
                                         return median_of(a.samples_us) < median_of(b.samples_us);
                                       });
  const auto ties = [&](const Finalist& finalist) {
    const Slowdown slowdown = paired_slowdown(finalist.samples_us, leader->samples_us);
    return slowdown.estimate < kNegligible || (finalist.is_default && slowdown.low <= 0);
  };
  const auto preference = [](const Finalist& f) {
    return std::tuple(!f.is_default, f.warned, f.resources.registers, f.smem_bytes,
                      digest_of(f.id));
  };
  auto winner = leader;
  for (auto f = finalists.begin(); f != finalists.end(); ++f) {
    if (ties(*f) && preference(*f) < preference(*winner)) winner = f;
  }
  return static_cast<std::size_t>(winner - finalists.begin());
}

}  // namespace kernwright
