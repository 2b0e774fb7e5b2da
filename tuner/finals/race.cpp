#include "tuner/finals/race.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>

#include "support/random.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/finals/power_blocks.h"
#include "tuner/finals/rounds.h"

namespace kernwright {
namespace {

/// How a rung ends: who is within `margin` of the best stays, but at least and at most so many.
struct Rung {
  int rounds = 0;
  double margin = 0;
  std::size_t least = 0;
  std::size_t most = 0;
};
constexpr Rung kScreened{0, 0.20, 24, 96};
/// The last one keeps enough that hardly ever all of them meet a power limit that others do not.
constexpr Rung kRungs[] = {{4, 0.08, 8, 32}, {16, 0.03, 6, 16}};
/// Each rung before the finals gets this share of the seconds, and these no less, however long
/// their finalists' checks took.
constexpr double kRungShare = 0.25;

constexpr int kFirstLook = 16;
/// New processes in one rung, beyond those that a failing survivor explains.
constexpr int kRestarts = 3;
/// A repeated rung begins when the probes have run for so long.
constexpr double kRewarmSeconds = 1;
constexpr int kRewarmSamples = 2000;  ///< if the clock does not advance
/// A candidate that was this much slower before is checked again.
constexpr double kSuspicious = 0.9;

Error began_anew(int restarts) {
  return {ErrorCode::device,
          concat("the measuring process began anew ", restarts, " times in one rung")};
}

class Race {
 public:
  Race(Runner& runner, std::span<const Survivor> survivors, const RaceOptions& options)
      : runner_(runner), survivors_(survivors), options_(options), start_(options.clock_seconds()) {
    for (const Survivor& survivor : survivors) {
      ids_.push_back(survivor.choice.id());
      known_us_.push_back(survivor.score_us);
    }
  }

  Result<RaceResult> run();

 private:
  using Indices = std::vector<std::size_t>;

  double elapsed() const { return options_.clock_seconds() - start_; }
  bool always_in(std::size_t i) const {
    return survivors_[i].traits.is_known_answer() || survivors_[i].is_for_chains;
  }

  Result<double> seconds_per_sample();
  Indices keep_near(Indices live, std::span<const double> scores, const Rung& rung,
                    std::size_t most);
  Result<Indices> climb();
  Result<void> take_rung(Indices& live, int rounds, RoundSamples& samples);
  Result<bool> take_round(Indices& live, RoundSamples& samples);
  Result<bool> repeat_if_disturbed(RoundSamples& samples, bool& repeated);
  Result<void> verify_suspicious(Indices& live, const RoundSamples& samples);
  Result<bool> passes(std::size_t survivor, const Result<Runner::Checked>& checked);
  void fail(std::size_t survivor, const Runner::Step& step);

  Result<void> finals(Indices entering);
  Result<Indices> admit(Indices entering);
  Result<void> sample_finals(Indices& finalists, RoundSamples& samples);
  Result<void> check_after(Indices& finalists);
  std::vector<RaceResult::Finalist> sampled(const Indices& finalists,
                                            const RoundSamples& samples) const;
  static FinalRounds rounds_of(const RoundSamples& samples);
  void conclude(const Indices& finalists, const RoundSamples& samples);

  Runner& runner_;
  std::span<const Survivor> survivors_;
  const RaceOptions& options_;
  double start_;
  std::vector<std::string> ids_;     ///< of each survivor's choice
  std::vector<double> known_us_;     ///< of each survivor, as measured last
  std::deque<std::size_t> reserve_;  ///< cut off before the finals, the best first
  std::map<std::size_t, CheckReport> checks_;
  std::uint64_t drawn_ = 0;
  RaceResult result_;
};

void Race::fail(std::size_t survivor, const Runner::Step& step) {
  result_.failed.emplace_back(survivor, step);
}

/// Remembers the proof of who passed and the end of who did not.
Result<bool> Race::passes(std::size_t survivor, const Result<Runner::Checked>& checked) {
  if (!checked) return checked.error();
  if (checked.value().step.outcome != Outcome::ok) {
    fail(survivor, checked.value().step);
    return false;
  }
  return true;
}

Result<double> Race::seconds_per_sample() {
  const auto fastest = std::min_element(known_us_.begin(), known_us_.end()) - known_us_.begin();
  const Runner::Id order[] = {Runner::kSmProbe, Runner::kDramProbe,
                              survivors_[static_cast<std::size_t>(fastest)].id};
  const double before = elapsed();
  KW_TRY(runner_.sample(order));
  return (elapsed() - before) / std::size(order);
}

Race::Indices Race::keep_near(Indices live, std::span<const double> scores, const Rung& rung,
                              std::size_t most) {
  Indices order(live.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(scores[a], ids_[live[a]]) < std::pair(scores[b], ids_[live[b]]);
  });
  auto kept = static_cast<std::size_t>(
      std::count_if(live.begin(), live.end(), [this](std::size_t i) { return always_in(i); }));
  Indices in;
  Indices cut;
  for (const std::size_t at : order) {
    const bool near = scores[at] <= scores[order.front()] + std::log1p(rung.margin);
    const bool room = in.size() + kept < std::min(rung.most, most);
    if (always_in(live[at])) {
      in.push_back(live[at]);
      --kept;
    } else if (room && (near || in.size() + kept < rung.least)) {
      in.push_back(live[at]);
    } else {
      cut.push_back(live[at]);
    }
  }
  reserve_.insert(reserve_.begin(), cut.begin(), cut.end());
  return in;
}

/// One sample of everybody in a fresh random order between the probes. False: samples taken
/// before can no longer be compared, and the rung begins again.
Result<bool> Race::take_round(Indices& live, RoundSamples& samples) {
  Indices order = live;
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[hash_at(options_.random_seed, drawn_++) % left]);
  }
  std::vector<Runner::Id> ids{Runner::kSmProbe};
  for (const std::size_t i : order) ids.push_back(survivors_[i].id);
  ids.push_back(Runner::kDramProbe);
  const int epoch = runner_.epoch();
  KW_ASSIGN(const std::vector<Runner::Sampled> taken, runner_.sample(ids));
  for (const Runner::Sampled* probe : {&taken.front(), &taken.back()}) {
    if (probe->step.outcome != Outcome::ok) {
      return Error{ErrorCode::device,
                   concat("a probe kernel failed (", to_string(probe->step.outcome),
                          "): ", probe->step.detail)};
    }
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    const auto& [step, sample] = taken[at + 1];
    if (step.outcome != Outcome::ok) {
      fail(order[at], step);
      std::erase(live, order[at]);
      samples.of.erase(order[at]);
    } else {
      samples.of[order[at]].push_back(sample);
    }
  }
  samples.sm_probe.push_back(taken.front().sample);
  samples.dram_probe.push_back(taken.back().sample);
  if (runner_.epoch() == epoch) return true;
  samples = {};
  return false;
}

/// Returns true if the rung must begin again: that happens once, after a while of probes alone.
Result<bool> Race::repeat_if_disturbed(RoundSamples& samples, bool& repeated) {
  samples.drop_disturbed();
  if (!samples.disturbed()) return false;
  if (std::exchange(repeated, true)) {
    result_.audit.merge({{{"rounds", Trust::c,
                           concat(samples.dropped.size(), " of ", samples.count(),
                                  " rounds were disturbed, twice")}}});
    return false;
  }
  const Runner::Id probes[] = {Runner::kSmProbe, Runner::kDramProbe};
  const double until = elapsed() + kRewarmSeconds;
  for (int i = 0; i < kRewarmSamples && elapsed() < until; ++i) {
    KW_TRY(runner_.sample(probes));
  }
  samples = {};
  return true;
}

Result<void> Race::take_rung(Indices& live, int rounds, RoundSamples& samples) {
  int restarts = 0;
  bool repeated = false;
  while (!live.empty() && samples.count() < rounds) {
    const std::size_t failures = result_.failed.size();
    KW_ASSIGN(auto comparable, take_round(live, samples));
    if (!comparable && failures == result_.failed.size() && ++restarts > kRestarts) {
      return began_anew(restarts);
    }
    if (samples.count() < rounds) continue;
    KW_TRY(repeat_if_disturbed(samples, repeated));
  }
  return {};
}

/// A kernel that has become much faster may have stopped doing its work.
Result<void> Race::verify_suspicious(Indices& live, const RoundSamples& samples) {
  for (const std::size_t i : Indices(live)) {
    const double now = median_us(samples, i);
    if (now < kSuspicious * known_us_[i]) {
      KW_ASSIGN(auto passed,
                passes(i, runner_.check(survivors_[i].id, Runner::CheckDepth::screening)));
      if (!passed) std::erase(live, i);
    }
    known_us_[i] = now;
  }
  return {};
}

/// The rungs before the finals. Gives those that may enter them, the best first.
Result<Race::Indices> Race::climb() {
  Indices live(survivors_.size());
  std::iota(live.begin(), live.end(), std::size_t{0});
  KW_ASSIGN(auto seconds, seconds_per_sample());
  const auto finalists = static_cast<std::size_t>(std::max(options_.finalists, 1));
  /// As many as one rung has time for.
  const auto affordable = [&](int rounds) {
    const double each = std::max(seconds * rounds, 1e-9);
    return std::max(finalists,
                    static_cast<std::size_t>(std::min(kRungShare * options_.seconds / each, 1e6)));
  };
  std::vector<double> scores;
  for (const double us : known_us_) scores.push_back(std::log(us));
  const bool all = live.size() <= finalists;
  live = keep_near(live, scores, all ? Rung{0, 1e9, 0, finalists} : kScreened,
                   affordable(kRungs[0].rounds));
  for (std::size_t at = 0; at < std::size(kRungs) && live.size() > finalists; ++at) {
    const bool last = at + 1 == std::size(kRungs);
    RoundSamples samples;
    result_.raced = std::max(result_.raced, static_cast<int>(live.size()));
    KW_TRY(take_rung(live, kRungs[at].rounds, samples));
    if (live.empty()) break;
    KW_TRY(verify_suspicious(live, samples));
    live = keep_near(live, relative_medians(samples, live), kRungs[at],
                     last ? finalists : affordable(kRungs[at + 1].rounds));
  }
  return live;
}

/// The proof that finalists need. Who fails makes room for the best of the reserve.
Result<Race::Indices> Race::admit(Indices entering) {
  Indices admitted;
  for (std::size_t at = 0; at < entering.size(); ++at) {
    const std::size_t i = entering[at];
    auto checked = runner_.check(survivors_[i].id, Runner::CheckDepth::finalist);
    KW_ASSIGN(auto passed, passes(i, checked));
    if (passed) {
      checks_[i] = checked.value().report;
      admitted.push_back(i);
    } else if (!reserve_.empty()) {
      entering.push_back(reserve_.front());
      reserve_.pop_front();
    }
  }
  std::sort(admitted.begin(), admitted.end());
  return admitted;
}

std::vector<RaceResult::Finalist> Race::sampled(const Indices& finalists,
                                                const RoundSamples& samples) const {
  std::vector<RaceResult::Finalist> result;
  for (const std::size_t i : finalists) result.push_back({i, samples.of.at(i), checks_.at(i)});
  return result;
}

FinalRounds Race::rounds_of(const RoundSamples& samples) {
  FinalRounds rounds;
  for (const Sample& sample : samples.sm_probe) rounds.sm_probe_us.push_back(sample.us);
  for (const Sample& sample : samples.dram_probe) rounds.dram_probe_us.push_back(sample.us);
  rounds.dropped = samples.dropped;
  return rounds;
}

/// Rounds until the verdict is settled. Who fails leaves `finalists`.
Result<void> Race::sample_finals(Indices& finalists, RoundSamples& samples) {
  Indices racing = finalists;
  int look = kFirstLook;
  int restarts = 0;
  bool repeated = false;
  double began = elapsed();
  const auto again = [&] {
    racing = finalists;
    samples = {};
    look = kFirstLook;
    began = elapsed();
  };
  while (!racing.empty()) {
    const std::size_t failures = result_.failed.size();
    KW_ASSIGN(auto comparable, take_round(racing, samples));
    const bool failed = result_.failed.size() > failures;
    for (std::size_t at = failures; at < result_.failed.size(); ++at) {
      std::erase(finalists, result_.failed[at].first);
    }
    if (!comparable && !failed && ++restarts > kRestarts) return began_anew(restarts);
    // The finalists that dropped out may have been slower than the one that failed, and than no
    // other.
    if (!comparable || (failed && racing.size() < finalists.size())) {
      again();
      continue;
    }
    const double left = std::max(options_.seconds - began, kRungShare * options_.seconds);
    const double seconds = std::min(options_.finals_seconds, left);
    const bool last = samples.count() >= options_.max_rounds ||
                      (samples.count() >= kMinRounds && elapsed() - began >= seconds);
    if (samples.count() < look && !last) continue;
    KW_ASSIGN(auto repeat, repeat_if_disturbed(samples, repeated));
    if (repeat) {
      again();
      continue;
    }
    if (look == kFirstLook) {
      KW_TRY(verify_suspicious(racing, samples));
      std::erase_if(finalists, [&](std::size_t i) {
        return std::find(racing.begin(), racing.end(), i) == racing.end();
      });
    }
    if (last || samples.disturbed() || finalists.empty()) break;
    const Decision decision = decide(survivors_, sampled(finalists, samples), rounds_of(samples));
    if (decision.settled) break;
    for (std::size_t at = 0; at < finalists.size(); ++at) {
      if (decision.standings[at].out) std::erase(racing, finalists[at]);
    }
    look *= 2;
  }
  return {};
}

Result<void> Race::check_after(Indices& finalists) {
  for (const std::size_t i : Indices(finalists)) {
    auto checked = runner_.check_after_timing(survivors_[i].id);
    KW_ASSIGN(auto passed, passes(i, checked));
    if (passed) {
      checks_[i].after_timing = true;
    } else {
      std::erase(finalists, i);
    }
  }
  return {};
}

void Race::conclude(const Indices& finalists, const RoundSamples& samples) {
  result_.rounds = rounds_of(samples);
  result_.finalists = sampled(finalists, samples);
  result_.decision = decide(survivors_, result_.finalists, result_.rounds);
}

Result<void> Race::finals(Indices entering) {
  while (!entering.empty() && result_.finalists.empty()) {
    KW_ASSIGN(Indices finalists, admit(std::move(entering)));
    RoundSamples samples;
    KW_TRY(sample_finals(finalists, samples));
    KW_TRY(check_after(finalists));
    if (!finalists.empty()) conclude(finalists, samples);
    // There is another turn only if every finalist failed.
    const auto next = std::min(reserve_.size(), static_cast<std::size_t>(options_.finalists));
    entering.assign(reserve_.begin(), reserve_.begin() + static_cast<std::ptrdiff_t>(next));
    reserve_.erase(reserve_.begin(), reserve_.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return {};
}

Result<RaceResult> Race::run() {
  KW_ASSIGN(auto live, climb());
  result_.raced = std::max(result_.raced, static_cast<int>(live.size()));
  KW_TRY(finals(std::move(live)));
  if (options_.alone && !result_.finalists.empty()) {
    KW_TRY(race_alone(runner_, survivors_, options_, result_));
  }
  return std::move(result_);
}

}  // namespace

Decision decide(std::span<const Survivor> survivors,
                std::span<const RaceResult::Finalist> finalists, const FinalRounds& rounds) {
  std::vector<RankedConfiguration> ranked;
  for (const RaceResult::Finalist& finalist : finalists) {
    const Survivor& survivor = survivors[finalist.survivor];
    RankedConfiguration& one = ranked.emplace_back();
    one.choice = survivor.choice;
    one.traits = survivor.traits;
    one.traits.deterministic = survivor.traits.deterministic && finalist.check.deterministic;
    for (const Sample& sample : finalist.samples) one.measurement.samples_us.push_back(sample.us);
    one.in_blocks = finalist.in_blocks;
  }
  return decide(ranked, rounds);
}

Result<RaceResult> race(Runner& runner, std::span<const Survivor> survivors,
                        const RaceOptions& options) {
  return Race(runner, survivors, options).run();
}

}  // namespace kernwright
