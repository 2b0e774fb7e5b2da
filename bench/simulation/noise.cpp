#include "bench/simulation/noise.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr Range kThrottle{0.03, 0.10};
constexpr Range kThrottleSeconds{0.3, 3.0};
constexpr Range kLoad{0.05, 0.50};
constexpr Range kLoadSeconds{0.3, 3.0};
/// The share of a candidate's failures that waits until it is sampled.
constexpr double kLateFailures = 0.25;
constexpr double kLateSamples = 40;
constexpr double kProcessSigma = 0.003;

/// How a candidate can fail on the device without taking the device along.
constexpr Outcome kFailures[] = {Outcome::launch_failed,   Outcome::out_of_memory,
                                 Outcome::illegal_address, Outcome::out_of_bounds,
                                 Outcome::wrong_result,    Outcome::nondeterministic,
                                 Outcome::timed_out,       Outcome::worker_died};

// Each kind of draw has a seed of its own, so that parts of the noise do not depend on each other.
enum class Purpose : std::uint64_t { drift = 1, throttle, load, candidate };
std::uint64_t seed_for(std::uint64_t seed, Purpose purpose) {
  return hash_at(seed, static_cast<std::uint64_t>(purpose));
}

struct Part {
  std::string_view name;
  double default_value;  ///< the number if none is written
  void (*apply)(NoiseModel& model, double number);
};

constexpr Part kParts[] = {
    {"none", 0, [](NoiseModel&, double) {}},
    {"samples", 0.3,
     [](NoiseModel& m, double percent) {
       m.sample_sigma = percent / 100;
       m.probe_sigma = std::min(m.sample_sigma, 0.002);
     }},
    {"drift", 1, [](NoiseModel& m, double percent) { m.drift_sigma = percent / 100; }},
    {"throttle", 0.1,
     [](NoiseModel& m, double rate) {
       m.throttle.per_second = rate;
       m.throttle.slowdown = kThrottle;
       m.throttle.seconds = kThrottleSeconds;
     }},
    {"load", 0.1,
     [](NoiseModel& m, double rate) {
       m.foreign_load.per_second = rate;
       m.foreign_load.slowdown = kLoad;
       m.foreign_load.seconds = kLoadSeconds;
     }},
    {"outliers", 1, [](NoiseModel& m, double percent) { m.outlier_share = percent / 100; }},
    {"transient", 6, [](NoiseModel& m, double percent) { m.transient = percent / 100; }},
    {"power_steps", 30, [](NoiseModel& m, double percent) { m.power_step_share = percent / 100; }},
    {"best_step", 0, [](NoiseModel& m, double) { m.best_steps = true; }},
    {"tick", 1.024, [](NoiseModel& m, double us) { m.tick_us = us; }},
    {"failures", 5, [](NoiseModel& m, double percent) { m.failure_share = percent / 100; }},
    {"restart", 1,
     [](NoiseModel& m, double seconds) {
       m.restarts_at_seconds.push_back(seconds);
       if (m.restart_sigma == 0) m.restart_sigma = kProcessSigma;
     }},
    {"process", 100 * kProcessSigma,
     [](NoiseModel& m, double percent) { m.restart_sigma = percent / 100; }},
    {"power_lag", 0.02, [](NoiseModel& m, double seconds) { m.power_lag_seconds = seconds; }},
};

std::string part_names() {
  std::string names;
  for (const Part& part : kParts) names += concat(names.empty() ? "" : ", ", part.name);
  return names;
}

}  // namespace

Result<NoiseModel> parse_noise(std::string_view text) {
  NoiseModel model;
  for (const std::string_view piece : split(text, '+')) {
    const std::size_t equals = piece.find('=');
    const std::string_view name = trim(piece.substr(0, equals));
    const auto part = std::find_if(std::begin(kParts), std::end(kParts),
                                   [&](const Part& known) { return known.name == name; });
    if (part == std::end(kParts)) {
      return Error{ErrorCode::invalid_argument,
                   concat("the noise model has no part \"", name, "\"; it has ", part_names())};
    }
    double number = part->default_value;
    if (equals != std::string_view::npos) {
      const std::string_view digits = trim(piece.substr(equals + 1));
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size()) {
        return Error{ErrorCode::invalid_argument,
                     concat("the noise model's part \"", piece, "\" ends in no number")};
      }
    }
    part->apply(model, number);
  }
  return model;
}

DeviceNoise::Walk::Walk(const Episodes& episodes, std::uint64_t seed)
    : episodes_(episodes), random_(seed) {
  begin_next(0);
}

void DeviceNoise::Walk::begin_next(double after) {
  start_ = episodes_.per_second > 0 ? after + random_.exponential(episodes_.per_second)
                                    : std::numeric_limits<double>::infinity();
  if (episodes_.first_at_seconds < start_) {
    start_ = std::exchange(episodes_.first_at_seconds, std::numeric_limits<double>::infinity());
  }
  end_ = start_ + random_.uniform(episodes_.seconds);
  slowdown_ = random_.uniform(episodes_.slowdown);
}

double DeviceNoise::Walk::slowdown_at(double seconds) {
  while (seconds >= end_) begin_next(end_);
  return seconds >= start_ ? slowdown_ : 0;
}

DeviceNoise::DeviceNoise(const NoiseModel& model, std::uint64_t seed)
    : sigma_(model.drift_sigma),
      tau_seconds_(model.drift_tau_seconds),
      random_(seed_for(seed, Purpose::drift)),
      drift_(sigma_ * random_.normal()),
      lag_seconds_(model.power_lag_seconds),
      throttle_(model.throttle, seed_for(seed, Purpose::throttle)),
      load_(model.foreign_load, seed_for(seed, Purpose::load)) {}

DeviceNoise::State DeviceNoise::at(double seconds) {
  if (sigma_ > 0 && seconds > last_seconds_) {
    const double kept = std::exp((last_seconds_ - seconds) / tau_seconds_);
    drift_ = drift_ * kept + sigma_ * std::sqrt(1 - kept * kept) * random_.normal();
    last_seconds_ = seconds;
  }
  return {std::exp(drift_) * (1 - throttle_.slowdown_at(seconds)), 1 + load_.slowdown_at(seconds)};
}

double DeviceNoise::run(double step, double seconds) {
  if (seconds <= 0) return power_slowdown_;
  const double kept = std::exp(-seconds / lag_seconds_);
  const double before = std::exchange(power_slowdown_, step + (power_slowdown_ - step) * kept);
  return step + (before - step) * (1 - kept) * lag_seconds_ / seconds;
}

CandidateNoise CandidateNoise::draw(const NoiseModel& model, std::uint64_t seed,
                                    std::size_t candidate, bool best) {
  RandomStream random(hash_at(seed_for(seed, Purpose::candidate), candidate));
  CandidateNoise noise;
  const bool steps = random.uniform() < model.power_step_share;
  const double step = random.uniform(model.power_step);
  if (steps || (best && model.best_steps)) noise.power_step = step;
  noise.transient = model.transient * random.uniform({0.5, 1.0});
  const bool fails = random.uniform() < model.failure_share;
  const Outcome failure = kFailures[random.below(std::size(kFailures))];
  const bool late = random.uniform() < kLateFailures;
  const double at_sample = random.uniform({0, kLateSamples});
  if (fails) {
    noise.failure = failure;
    if (late) noise.failure_at_sample = static_cast<int>(at_sample);
  }
  return noise;
}

}  // namespace kernwright
