#include "bench/common/proportion.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

constexpr double kTail = 0.025;

/// Returns the probability of at most `count` of `trials` if each has probability `p`, in (0, 1).
double at_most(int count, int trials, double p) {
  const double log_p = std::log(p);
  const double log_q = std::log1p(-p);
  double sum = 0;
  for (int k = 0; k <= count; ++k) {
    sum += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) -
                    std::lgamma(trials - k + 1.0) + k * log_p + (trials - k) * log_q);
  }
  return std::min(sum, 1.0);
}

/// The p at which `at_most(count, trials, p)`, which falls with p, is `probability`.
double solve(int count, int trials, double probability) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (at_most(count, trials, middle) > probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double Proportion::low() const { return count <= 0 ? 0 : solve(count - 1, trials, 1 - kTail); }

double Proportion::high() const { return count >= trials ? 1 : solve(count, trials, kTail); }

}  // namespace kernwright
