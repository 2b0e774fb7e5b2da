#include "model/result/measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/text.h"

namespace kernwright {
namespace {

/// The median; infinite without samples, so that a candidate without samples never wins.
double median_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

std::string_view to_string(L2State state) { return to_string<L2State>(state); }

std::optional<L2State> parse_l2_state(std::string_view name) { return parse_as<L2State>(name); }

std::string MeasurePolicy::text() const {
  return concat("l2=", to_string(l2), " launch=graph power=sustained");
}

std::optional<MeasurePolicy> parse_policy(std::string_view text) {
  for (const L2State l2 : {L2State::cold, L2State::warm, L2State::mixed}) {
    const MeasurePolicy policy{l2};
    if (policy.text() == text) return policy;
  }
  return std::nullopt;
}

double Measurement::median_us() const { return median_of(samples_us); }

double Measurement::mad_us() const {
  const double median = median_us();
  std::vector<double> deviations = samples_us;
  for (double& sample : deviations) sample = std::abs(sample - median);
  return median_of(std::move(deviations));
}

double Measurement::min_us() const {
  if (samples_us.empty()) return std::numeric_limits<double>::infinity();
  return *std::min_element(samples_us.begin(), samples_us.end());
}

}  // namespace kernwright
