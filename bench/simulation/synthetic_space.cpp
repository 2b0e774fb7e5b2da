#include "bench/simulation/synthetic_space.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/simulation/random_stream.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::size_t kParameters = 5;
constexpr std::int64_t kValues = 6;
constexpr double kCompileSeconds = 1.0;
constexpr double kCompileSpread = 0.4;

using Point = std::array<double, kParameters>;

std::string parameter_name(std::size_t index) { return concat("P", index); }

double distance(const Point& a, const Point& b) {
  double square = 0;
  for (std::size_t i = 0; i < kParameters; ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

/// How much slower than the best a point is, as a share.
class Shape {
 public:
  Shape(Landscape landscape, std::uint64_t seed) : landscape_(landscape), random_(seed) {
    for (std::size_t i = 0; i < kParameters; ++i) {
      weight_[i] = random_.uniform({0.01, 0.08});
      coupling_[i] = random_.uniform({-0.3, 0.3});
      best_[i] = static_cast<double>(random_.below(kValues));
      // The deceptive basin is at the other end.
      basin_[i] = best_[i] < kValues / 2.0 ? kValues - 1.0 : 0.0;
    }
  }

  double slowdown(const Point& at) const {
    switch (landscape_) {
      case Landscape::bowl:
        return bowl(at, best_);
      case Landscape::plateaus:
        return 0.04 * std::floor(bowl(at, best_) / 0.04);
      case Landscape::ties:
        return std::max(0.0, bowl(at, best_) - 0.20);
      case Landscape::deceptive: {
        const double near = 0.08 * distance(at, best_);
        return near < 0.15 ? near : 0.10 + bowl(at, basin_);
      }
    }
    return 0;
  }

 private:
  /// Separable, but for neighbouring parameters that want to move together. Positive definite, as
  /// the couplings stay below a half.
  double bowl(const Point& at, const Point& centre) const {
    double sum = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      const std::size_t next = (i + 1) % kParameters;
      const double here = std::sqrt(weight_[i]) * (at[i] - centre[i]);
      const double there = std::sqrt(weight_[next]) * (at[next] - centre[next]);
      sum += here * here + 2 * coupling_[i] * here * there;
    }
    return sum;
  }

  Landscape landscape_;
  RandomStream random_;
  Point weight_{};
  Point coupling_{};
  Point best_{};
  Point basin_{};
};

RecordedConfiguration made(Configuration configuration, double us, double compile_seconds) {
  RecordedConfiguration one;
  one.configuration = std::move(configuration);
  one.samples_us = {us};
  one.truth_us = us;
  one.compile_seconds = compile_seconds;
  one.registers = 64;
  return one;
}

RecordedSpace empty_space(std::string name) {
  RecordedSpace space;
  space.name = std::move(name);
  space.device = "simulated";
  space.kernel = "synthetic";
  space.templates = {"synthetic"};
  return space;
}

}  // namespace

std::string_view to_string(Landscape landscape) {
  constexpr std::string_view kNames[] = {"bowl", "plateaus", "deceptive", "ties"};
  return kNames[static_cast<std::size_t>(landscape)];
}

RecordedSpace synthetic_space(Landscape landscape, double best_us, std::uint64_t seed) {
  const Shape shape(landscape, seed);
  RandomStream random(~seed);
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < kParameters; ++i) {
    Parameter parameter{.name = parameter_name(i), .values = {}};
    for (std::int64_t value = 0; value < kValues; ++value) parameter.values.push_back(value);
    parameters.push_back(std::move(parameter));
  }
  const ParameterSpace points(std::move(parameters));
  RecordedSpace space = empty_space(concat("synthetic_", to_string(landscape)));
  for (std::int64_t i = 0; i < points.size(); ++i) {
    Configuration configuration = points.at(i);
    Point at{};
    for (std::size_t p = 0; p < kParameters; ++p) {
      at[p] = static_cast<double>(configuration.values()[p].second);
    }
    const double compile = kCompileSeconds * std::exp(kCompileSpread * random.normal());
    space.configurations.push_back(
        made(std::move(configuration), best_us * (1 + shape.slowdown(at)), compile));
  }
  space.default_index = random.below(space.configurations.size());
  return space;
}

RecordedSpace gap_space(std::string name, double best_us, std::span<const double> gaps) {
  RecordedSpace space = empty_space(std::move(name));
  for (const double gap : gaps) {
    const auto number = static_cast<std::int64_t>(space.configurations.size());
    space.configurations.push_back(
        made(Configuration({{"N", number}}), best_us * (1 + gap), kCompileSeconds));
  }
  space.default_index = space.configurations.size() - 1;
  return space;
}

RecordedSpace sub_space(const RecordedSpace& space, std::size_t best, std::size_t random,
                        std::uint64_t seed) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    if (space.configurations[i].outcome == Outcome::ok) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(space.configurations[a].truth_us, a) <
           std::pair(space.configurations[b].truth_us, b);
  });
  RandomStream stream(seed);
  best = std::min(best, order.size());
  const std::size_t count = std::min(order.size(), best + random);
  for (std::size_t i = best; i < count; ++i) {
    std::swap(order[i], order[i + stream.below(order.size() - i)]);
  }
  RecordedSpace part = space;
  part.configurations.clear();
  for (std::size_t i = 0; i < count; ++i) {
    part.configurations.push_back(space.configurations[order[i]]);
  }
  part.default_index = count - 1;
  return part;
}

}  // namespace kernwright
