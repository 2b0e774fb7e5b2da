// Counts how often a race chooses a wrong winner, under models of noise, on synthetic and recorded
// spaces. The choices of a plain minimum and of a plain median of as many samples are printed
// beside it. Needs no GPU.
//
// The samples of a recorded space have noise of their own, so that a model adds to it only the
// device's effects. A space that was recorded without clocks was also recorded without batching:
// nothing in it tells a step of the clock from a slow kernel. Its rows have an origin of their own,
// `recorded_without_clocks`, because no aim holds for them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <tbb/parallel_for.h>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/proportion.h"
#include "bench/simulation/recorded_space.h"
#include "bench/simulation/selection_trial.h"
#include "bench/simulation/synthetic_space.h"
#include "support/random.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: selection_error [--landscapes DIR] [--json FILE] [--trials 10000]\n"
    "                       [--model NAME|all] [--seed 1]\n";
constexpr int kTrials = 10000;
constexpr std::size_t kLadderBest = 64;
constexpr std::size_t kLadderRandom = 192;
constexpr double kSyntheticUs = 50;
/// A gap of exactly 1 % is not more than 1 %.
constexpr double kRounding = 1e-9;

/// A model of noise: what samples do by themselves, what the device does to all of them, and which
/// truth is looked for with which means.
struct Model {
  std::string_view name;
  std::string_view samples;
  std::string_view device;
  bool power_limited = false;
  bool long_blocks = false;
};
constexpr std::string_view kSamples = "samples=0.5+outliers+tick";
constexpr Model kModels[] = {
    {"calm", "samples=0.3+outliers+tick", "none"},
    {"drift", kSamples, "drift=1+throttle=0.1"},
    {"noisy", "samples=2+outliers+tick", "drift=1+throttle=0.1"},
    {"rough", "samples=2+outliers+tick", "drift=2+throttle=0.2"},
    {"load", kSamples, "drift=0.5+load=0.1"},
    {"boost", kSamples, "drift=0.5+transient=-10"},
    {"failures", kSamples, "drift=0.5+failures=5"},
    {"restart", kSamples, "drift=0.5+restart=0.7+restart=4"},
    {"restart_mild", kSamples, "drift=0.5+restart=0.7+restart=4+process=0.1"},
    // The best at a clock that all share, if the power limit lowers it.
    {"best_step", kSamples, "drift=0.5+best_step"},
    {"power_steps", kSamples, "drift=0.5+power_steps=30"},
    // The best alone for long, with time for long blocks and without. A device whose clock follows
    // ten times as slowly as an H200's needs long ones.
    {"drift_sustained", kSamples, "drift=1+throttle=0.1", true},
    {"best_sustained", kSamples, "drift=0.5+best_step", true},
    {"sustained", kSamples, "drift=0.5+power_steps=30", true},
    {"best_blocks", kSamples, "drift=0.5+best_step", true, true},
    {"sustained_blocks", kSamples, "drift=0.5+power_steps=30", true, true},
    {"sustained_slow", kSamples, "drift=0.5+power_steps=30+power_lag=0.2", true},
    {"blocks_slow", kSamples, "drift=0.5+power_steps=30+power_lag=0.2", true, true},
};

struct Case {
  std::string name;
  std::string origin;  ///< "synthetic", "recorded", "recorded_without_clocks"
  RecordedSpace space;
};

std::vector<Case> synthetic_cases() {
  std::vector<Case> cases;
  const auto gaps = [&](std::string name, const std::vector<double>& shares) {
    RecordedSpace space = gap_space(name, kSyntheticUs, shares);
    cases.push_back({std::move(name), "synthetic", std::move(space)});
  };
  std::vector<double> dense;
  for (int i = 0; i < 32; ++i) dense.push_back(0.0005 * i);
  gaps("aa_8", std::vector<double>(8, 0.0));
  gaps("twin_1", {0, 0.01, 0.2});
  gaps("twin_2", {0, 0.02, 0.2});
  gaps("gaps_8", {0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06});
  gaps("near_ties_32", dense);
  for (const Landscape landscape : kLandscapes) {
    RecordedSpace space =
        sub_space(synthetic_space(landscape, kSyntheticUs, 1), kLadderBest, kLadderRandom, 1);
    std::string name = concat("ladder_", to_string(landscape));
    cases.push_back({std::move(name), "synthetic", std::move(space)});
  }
  return cases;
}

std::vector<Case> recorded_cases(const std::string& folder) {
  std::vector<Case> cases;
  for (RecordedSpace& space : take(read_recorded_spaces(folder))) {
    const auto first = std::find_if(space.configurations.begin(), space.configurations.end(),
                                    [](const auto& c) { return c.outcome == Outcome::ok; });
    cases.push_back({space.name, first->sm_mhz.empty() ? "recorded_without_clocks" : "recorded",
                     sub_space(space, kLadderBest, kLadderRandom, 1)});
  }
  return cases;
}

std::vector<SelectionTrial> run_trials(const Case& one, const Model& model, int trials,
                                       std::uint64_t seed) {
  const BareCandidates candidates(one.space);
  const std::string text = one.origin == "synthetic" ? concat(model.samples, "+", model.device)
                                                     : std::string(model.device);
  const NoiseModel noise = take(parse_noise(text));
  std::vector<SelectionTrial> results(static_cast<std::size_t>(trials));
  tbb::parallel_for(std::size_t{0}, results.size(), [&](std::size_t trial) {
    const SelectionOptions options{.simulation = {.noise = noise, .seed = hash_at(seed, trial)},
                                   .power_limited = model.power_limited,
                                   .long_blocks = model.long_blocks};
    auto result = run_selection_trial(one.space, candidates, options);
    // If every candidate fails there is no choice to judge.
    if (result) {
      results[trial] = *result;
    } else if (result.error().code != ErrorCode::not_found) {
      fail(result.error());
    }
  });
  return results;
}

/// The sum of the trials of one space under one model.
struct Summary {
  explicit Summary(const std::vector<SelectionTrial>& trials) {
    const auto count = [&](auto&& holds) {
      return static_cast<int>(std::count_if(trials.begin(), trials.end(), holds));
    };
    const auto mean = [&](auto&& number) {
      double sum = 0;
      for (const SelectionTrial& trial : trials) sum += static_cast<double>(number(trial));
      return sum / static_cast<double>(trials.size());
    };
    const int all = static_cast<int>(trials.size());
    const auto wrong = [&](double regret, auto&& of) {
      return Proportion{count([&](const SelectionTrial& t) { return of(t) > regret + kRounding; }),
                        all};
    };
    const auto chosen = [](const SelectionTrial& t) { return t.regret; };
    const auto of_min = [](const SelectionTrial& t) { return t.regret_of_min; };
    const auto of_median = [](const SelectionTrial& t) { return t.regret_of_median; };
    wrong_2 = wrong(0.02, chosen);
    wrong_1 = wrong(0.01, chosen);
    min_2 = wrong(0.02, of_min);
    min_1 = wrong(0.01, of_min);
    median_2 = wrong(0.02, of_median);
    median_1 = wrong(0.01, of_median);
    const auto trusted = [](const SelectionTrial& t) { return t.trust == Trust::a; };
    trust_a = {count(trusted), all};
    const auto trusted_and = [&](double regret) {
      return Proportion{count([&](const SelectionTrial& t) {
                          return trusted(t) && t.regret > regret + kRounding;
                        }),
                        trust_a.count};
    };
    trusted_wrong_2 = trusted_and(0.02);
    trusted_wrong_1 = trusted_and(0.01);
    win = {count([](const SelectionTrial& t) { return t.verdict == Verdict::win; }), all};
    tie = {count([](const SelectionTrial& t) { return t.verdict == Verdict::tie; }), all};
    win_right = {count([](const SelectionTrial& t) {
                   return t.verdict == Verdict::win && t.regret <= kRounding;
                 }),
                 all};
    win_wrong = {count([](const SelectionTrial& t) {
                   return t.verdict == Verdict::win && t.regret > kRounding;
                 }),
                 all};
    mean_regret = mean(chosen);
    rounds = mean([](const SelectionTrial& t) { return t.rounds; });
    samples = mean([](const SelectionTrial& t) { return t.samples; });
    seconds = mean([](const SelectionTrial& t) { return t.seconds; });
  }

  Proportion wrong_2, wrong_1, min_2, min_1, median_2, median_1;
  Proportion trust_a, trusted_wrong_2, trusted_wrong_1;
  Proportion win, tie, win_right, win_wrong;
  double mean_regret = 0;
  double rounds = 0;
  double samples = 0;
  double seconds = 0;
};

nlohmann::ordered_json bounds(const Proportion& p) {
  return {{"share", p.share()}, {"low", p.low()}, {"high", p.high()}, {"of", p.trials}};
}

nlohmann::ordered_json row(const Case& one, const Model& model, const Summary& s,
                           std::uint64_t seed) {
  return {{"problem", one.name},
          {"peer", model.name},
          {"space", one.name},
          {"origin", one.origin},
          {"model", model.name},
          {"noise", one.origin == "synthetic" ? concat(model.samples, "+", model.device)
                                              : std::string(model.device)},
          {"truth", model.power_limited ? "sustained" : "burst"},
          {"candidates", one.space.configurations.size()},
          {"trials", s.wrong_2.trials},
          {"seed", seed},
          {"wrong_2", bounds(s.wrong_2)},
          {"wrong_1", bounds(s.wrong_1)},
          {"trust_a", s.trust_a.share()},
          {"trust_a_wrong_2", bounds(s.trusted_wrong_2)},
          {"trust_a_wrong_1", bounds(s.trusted_wrong_1)},
          {"mean_regret", s.mean_regret},
          {"win", bounds(s.win)},
          {"win_right", bounds(s.win_right)},
          {"win_wrong", bounds(s.win_wrong)},
          {"tie", s.tie.share()},
          {"unresolved", 1 - s.win.share() - s.tie.share()},
          {"rounds", s.rounds},
          {"samples", s.samples},
          {"seconds", s.seconds},
          {"min_wrong_2", s.min_2.share()},
          {"min_wrong_1", s.min_1.share()},
          {"median_wrong_2", s.median_2.share()},
          {"median_wrong_1", s.median_1.share()}};
}

std::vector<Model> chosen_models(const std::string& name) {
  std::vector<Model> models;
  std::string names;
  for (const Model& model : kModels) {
    if (name == "all" || name == model.name) models.push_back(model);
    names += concat(", ", model.name);
  }
  if (models.empty()) {
    fail({ErrorCode::invalid_argument, concat("no model ", name, "; there are all", names)});
  }
  return models;
}

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const auto trials = static_cast<int>(integer_option(argc, argv, "--trials", kTrials));
  const auto seed = static_cast<std::uint64_t>(integer_option(argc, argv, "--seed", 1));
  const std::vector<Model> models =
      chosen_models(option_value(argc, argv, "--model").value_or("all"));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "selection_error", command_line(argc, argv), cpu_device()));
  std::vector<Case> cases = synthetic_cases();
  if (const auto folder = option_value(argc, argv, "--landscapes")) {
    std::vector<Case> recorded = recorded_cases(*folder);
    std::move(recorded.begin(), recorded.end(), std::back_inserter(cases));
  }
  std::printf(
      "%% of %d trials: wrong by more than 2 %% and 1 %%, with 95 %% bounds, of all and of those "
      "of "
      "trust A; the same of a plain minimum and a plain median; verdicts\n%-27s %-16s %15s %15s | "
      "%7s %15s %15s | %13s %13s | %6s %6s %6s | %6s %7s\n",
      trials, "space", "noise", "> 2", "> 1", "trust A", "> 2", "> 1", "minimum", "median", "win",
      "wrong", "tie", "rounds", "samples");
  for (const Case& one : cases) {
    for (const Model& model : models) {
      const auto start = std::chrono::steady_clock::now();
      const Summary s(run_trials(one, model, trials, seed));
      const double wall =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const auto percent = [](const Proportion& p) { return 100 * p.share(); };
      const auto bounded = [&](const Proportion& p) {
        char text[32];
        std::snprintf(text, sizeof text, "%6.2f (%6.2f)", percent(p), 100 * p.high());
        return std::string(text);
      };
      std::printf(
          "%-27s %-16s %s %s | %7.2f %s %s | %6.2f %6.2f %6.2f %6.2f | %6.2f %6.2f %6.2f | %6.1f "
          "%7.1f  %.1f s\n",
          one.name.c_str(), std::string(model.name).c_str(), bounded(s.wrong_2).c_str(),
          bounded(s.wrong_1).c_str(), percent(s.trust_a), bounded(s.trusted_wrong_2).c_str(),
          bounded(s.trusted_wrong_1).c_str(), percent(s.min_2), percent(s.min_1),
          percent(s.median_2), percent(s.median_1), percent(s.win), percent(s.win_wrong),
          percent(s.tie), s.rounds, s.samples, wall);
      std::fflush(stdout);
      if (auto added = json.add(row(one, model, s, seed)); !added) fail(added.error());
    }
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
