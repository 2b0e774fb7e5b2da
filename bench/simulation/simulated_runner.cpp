#include "bench/simulation/simulated_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr double kNominalMhz = 1980;
constexpr double kReferenceUs = 100;
constexpr double kReferenceSeconds = 0.001;
/// Between two samples: stamps, events, the host's turn.
constexpr double kGapSeconds = 30e-6;
constexpr double kPrepareSeconds = 0.002;
constexpr double kCheckSeconds = 0.005;
constexpr double kFinalistCheckSeconds = 0.05;
constexpr double kTimeOutSeconds = 1.0;
constexpr double kRestartSeconds = 1.5;
constexpr double kLaunchGapUs = 1.0;
/// Beyond it the device counts as idle and its clock changes.
constexpr double kIdleSeconds = 0.020;
/// Recorded samples taken one after another, at most, before the course jumps to another place. It
/// does so as well when others ran for so long in between that the correlation is gone.
constexpr std::size_t kBlock = 8;

constexpr std::uint64_t kProbeStream = 0x5ef;

bool fails_on_loading(Outcome outcome) {
  switch (outcome) {
    case Outcome::rejected:
    case Outcome::compile_failed:
    case Outcome::link_failed:
    case Outcome::spilled:
    case Outcome::launch_failed:
    case Outcome::out_of_memory:
      return true;
    default:
      return false;
  }
}

}  // namespace

SimulatedRunner::SimulatedRunner(const RecordedSpace& space, const BareCandidates& candidates,
                                 VirtualClock& clock, SimulationOptions options)
    : space_(space),
      candidates_(candidates),
      clock_(clock),
      options_(std::move(options)),
      device_(options_.noise, options_.seed),
      probe_random_(hash_at(options_.seed, kProbeStream)) {
  const double best_us = space.best_us();
  const auto best = std::find_if(space.configurations.begin(), space.configurations.end(),
                                 [&](const RecordedConfiguration& c) {
                                   return c.outcome == Outcome::ok && c.truth_us == best_us;
                                 });
  best_ = static_cast<std::size_t>(best - space.configurations.begin());
}

SimulatedRunner::Course& SimulatedRunner::course(std::size_t configuration) {
  const auto known = courses_.find(configuration);
  if (known != courses_.end()) return known->second;
  Course made(hash_at(~options_.seed, configuration));
  made.noise =
      CandidateNoise::draw(options_.noise, options_.seed, configuration, configuration == best_);
  made.outcome = space_.configurations[configuration].outcome;
  if (made.outcome == Outcome::ok) {
    made.outcome = made.noise.failure;
    made.failure_at_sample = made.noise.failure_at_sample;
  }
  return courses_.emplace(configuration, made).first->second;
}

double SimulatedRunner::true_us(std::size_t configuration, bool power_limited) const {
  if (!power_limited) return space_.configurations[configuration].truth_us;
  const CandidateNoise noise =
      CandidateNoise::draw(options_.noise, options_.seed, configuration, configuration == best_);
  return space_.configurations[configuration].truth_us * (1 + noise.power_step);
}

Result<std::size_t> SimulatedRunner::loaded(Id id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= ids_.size() ||
      !ids_[static_cast<std::size_t>(id)]) {
    return Error{ErrorCode::invalid_argument, concat("no candidate is loaded as ", id)};
  }
  return *ids_[static_cast<std::size_t>(id)];
}

void SimulatedRunner::restart(double seconds) {
  clock_.advance(seconds);
  ++epoch_;
}

void SimulatedRunner::work(double seconds) {
  const double begin = clock_.seconds();
  clock_.advance(seconds);
  use_.append({begin, clock_.seconds(), seconds, 0});
  busy_until_ = clock_.seconds();
}

DeviceNoise::State SimulatedRunner::device_now() {
  const auto& restarts = options_.noise.restarts_at_seconds;
  while (restarts_ < restarts.size() && clock_.seconds() >= restarts[restarts_]) {
    ++restarts_;
    restart(kRestartSeconds);
  }
  const DeviceNoise::State state = device_.at(clock_.seconds());
  loaded_by_others_ = loaded_by_others_ || state.load > 1;
  if (clock_.seconds() > busy_until_ + kIdleSeconds) samples_since_idle_ = 0;
  return state;
}

/// While a kernel runs for so long that alone would take a power step. Its end is up to the caller.
DeviceNoise::State SimulatedRunner::device_running(double step, double seconds) {
  DeviceNoise::State state = device_now();
  // The gap between two samples is part of running.
  device_.run(0, std::max(0.0, clock_.seconds() - busy_until_ - kGapSeconds));
  state.clock /= 1 + device_.run(step, seconds);
  return state;
}

Runner::Step SimulatedRunner::fail(Course& failing) {
  if (failing.outcome == Outcome::timed_out) clock_.advance(kTimeOutSeconds);
  if (failing.outcome == Outcome::timed_out || failing.outcome == Outcome::worker_died) {
    restart(kRestartSeconds);
  }
  lost_ = lost_ || failing.outcome == Outcome::device_lost;
  failing.failed = Step{failing.outcome, concat("simulated: ", to_string(failing.outcome))};
  return *failing.failed;
}

Result<Runner::Prepared> SimulatedRunner::prepare(const Candidate& candidate,
                                                  const CompiledKernel&) {
  const auto found = candidates_.find(candidate.id());
  if (!found) {
    return Error{ErrorCode::not_found,
                 concat("the recorded space ", space_.name, " has no ", candidate.id())};
  }
  clock_.advance(kPrepareSeconds);
  Course& loading = course(*found);
  if (loading.failed) return Prepared{-1, *loading.failed};
  if (loading.failure_at_sample < 0 && fails_on_loading(loading.outcome)) {
    return Prepared{-1, fail(loading)};
  }
  ids_.push_back(found);
  return Prepared{static_cast<Id>(ids_.size()) - 1, {}};
}

Result<Runner::Checked> SimulatedRunner::check(Id id, CheckDepth depth) {
  KW_ASSIGN(const auto configuration, loaded(id));
  Course& checking = course(configuration);
  device_now();
  work(depth == CheckDepth::screening ? kCheckSeconds : kFinalistCheckSeconds);
  Checked checked;
  if (checking.failed || (checking.failure_at_sample < 0 && checking.outcome != Outcome::ok)) {
    checked.step = checking.failed ? *checking.failed : fail(checking);
    return checked;
  }
  checked.report.elements = 1;
  checked.report.exact = true;
  checked.report.guarded = true;
  checked.report.unmapped = depth == CheckDepth::finalist;
  checked.report.repeats = 2;
  return checked;
}

Result<Runner::Checked> SimulatedRunner::check_after_timing(Id id) {
  auto checked = check(id, CheckDepth::screening);
  if (checked) checked->report.after_timing = checked->step.outcome == Outcome::ok;
  return checked;
}

std::size_t SimulatedRunner::next_recorded(Course& run, std::size_t count) const {
  const std::size_t steady = count / 2;
  if (options_.noise.transient != 0 && static_cast<std::size_t>(samples_since_idle_) < steady) {
    run.block_left = 0;
    return static_cast<std::size_t>(samples_since_idle_);
  }
  if (run.block_left == 0) {
    run.block_left = std::clamp<std::size_t>((count - steady) / 2, 1, kBlock);
    run.next = run.random.below(count - steady);
  }
  --run.block_left;
  return steady + run.next++ % (count - steady);
}

Sample SimulatedRunner::take_probe() {
  const DeviceNoise::State device = device_running(0, kReferenceSeconds);
  const double error = std::exp(options_.noise.probe_sigma * probe_random_.normal());
  const double slowdown = device.load / device.clock * error;
  work(kReferenceSeconds * slowdown);
  clock_.advance(kGapSeconds);
  ++samples_since_idle_;
  return {kReferenceUs * slowdown, kNominalMhz * device.clock, clock_.seconds()};
}

Runner::Sampled SimulatedRunner::take(std::size_t configuration) {
  Course& run = course(configuration);
  const NoiseModel& noise = options_.noise;
  if (run.failed) return {*run.failed, {}};
  if (run.outcome != Outcome::ok && run.samples >= run.failure_at_sample) return {fail(run), {}};
  const RecordedConfiguration& recorded = space_.configurations[configuration];
  const std::size_t count = recorded.samples_us.size();
  const double sample_seconds = std::max(options_.sample_ms * 1e-3, recorded.truth_us * 1e-6);
  const DeviceNoise::State device = device_running(run.noise.power_step, sample_seconds);
  const double away_seconds = clock_.seconds() - run.last_seconds;
  if (away_seconds > kBlock * sample_seconds) run.block_left = 0;
  const std::size_t at = count > 1 ? next_recorded(run, count) : 0;
  double us = recorded.samples_us[at];
  double mhz = recorded.sm_mhz.empty() ? kNominalMhz : recorded.sm_mhz[at];
  if (run.process != epoch_) {
    run.process = epoch_;
    run.process_factor = std::exp(noise.restart_sigma * run.random.normal());
  }
  us *= run.process_factor * device.load / device.clock;
  mhz *= device.clock;
  if (run.noise.transient != 0 && count == 1) {
    us *= 1 + run.noise.transient * std::exp(-samples_since_idle_ / noise.transient_samples);
  }
  if (noise.sample_sigma > 0) us *= std::exp(noise.sample_sigma * run.random.normal());
  if (noise.outlier_share > 0 && run.random.uniform() < noise.outlier_share) {
    us *= 1 + run.random.uniform(noise.outlier_slowdown);
  }
  const double units = std::max(1.0, std::round(options_.sample_ms * 1000 / us));
  if (noise.tick_us > 0) {
    const double tick = noise.tick_us / units;
    us = std::max(1.0, std::floor(us / tick + run.random.uniform())) * tick;
  }
  const double seconds = us * units * 1e-6;
  ++run.samples;
  ++samples_taken_;
  work(seconds);
  clock_.advance(kGapSeconds);
  run.last_seconds = clock_.seconds();
  ++samples_since_idle_;
  return {{}, {us, mhz, clock_.seconds()}};
}

Result<std::vector<Runner::Sampled>> SimulatedRunner::sample(std::span<const Id> order) {
  std::vector<Sampled> result;
  result.reserve(order.size());
  for (const Id id : order) {
    if (id == kSmProbe || id == kDramProbe) {
      result.emplace_back().sample = take_probe();
      continue;
    }
    KW_ASSIGN(const auto configuration, loaded(id));
    result.push_back(take(configuration));
  }
  return result;
}

Result<double> SimulatedRunner::launch_gap_us(Id id) {
  const auto configuration = loaded(id);
  if (!configuration) return configuration.error();
  return kLaunchGapUs;
}

Result<Audit> SimulatedRunner::audit() {
  Audit audit;
  if (std::exchange(loaded_by_others_, false)) {
    audit.rows.push_back({"foreign_processes", Trust::c, "simulated: somebody else's load"});
  }
  return audit;
}

void SimulatedRunner::drop(Id id) {
  if (loaded(id)) ids_[static_cast<std::size_t>(id)].reset();
}

}  // namespace kernwright
