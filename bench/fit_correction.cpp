// Fits the correction of the cost model's predictions (tuner/cost/correction.json) to trial logs
// and landscapes, and says how good the model's first choice is without it and with it. It needs no
// GPU.
//
// Only the order counts: of the fast candidates of a problem, and of the candidates that the model
// takes for fast. So an example is a measured candidate, weighted by how near it is to the fastest,
// in its time or in its prediction; all of a problem weigh at most as much as ten. The error that
// all of a problem have in common is taken off first, since it changes no order.
//
// The figures are for problems that were held out: the problems are dealt into five parts, alike
// ones into the same, and each part is judged by the correction that was fitted to the other four.
// They know only measured candidates, which earlier models chose. So they say nothing about a
// candidate that the corrected model would choose and no search has tried.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/boosted_trees.h"
#include "bench/simulation/predicted_order.h"
#include "bench/simulation/recorded_space.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/cost/correction.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: fit_correction --logs DIR --sku h100_sxm [--out tuner/cost/correction.json] [--json "
    "FILE]\n";
constexpr int kParts = 5;
constexpr double kNearInTime = 5;         // a candidate 20 % slower than the best counts e^-1
constexpr double kNearInPrediction = 10;  // one predicted 10 % slower than the first likewise
constexpr double kMostWeight = 10;        // of a problem

/// A measured candidate. Times are logarithms of microseconds.
struct Measured {
  double us = 0;
  double predicted_us = 0;
  Example example;
};

struct MeasuredProblem {
  std::string dtype;  ///< with what follows it in the problem's text
  int part = 0;
  std::vector<Measured> candidates;
  double best_us = std::numeric_limits<double>::infinity();
};

/// Sizes that count as alike, so that they are in the same part.
using Alike = std::tuple<std::string, long, long, long>;

Alike alike(const BoundProblem& problem) {
  const auto size = [&problem](std::string_view name) {
    return std::log2(static_cast<double>(problem.scope().find(name).value_or(1)));
  };
  return {problem.operation().name, std::lround(4 * size("m")), std::lround(2 * size("n")),
          std::lround(2 * size("k"))};
}

/// Sets the targets and weights of a problem's examples.
void weigh(MeasuredProblem& problem) {
  double first_us = std::numeric_limits<double>::infinity();
  for (const Measured& one : problem.candidates) first_us = std::min(first_us, one.predicted_us);
  double weight = 0;
  double off = 0;
  for (Measured& one : problem.candidates) {
    one.example.target = one.us - one.predicted_us;
    one.example.weight = std::max(std::exp(-kNearInTime * (one.us - problem.best_us)),
                                  std::exp(-kNearInPrediction * (one.predicted_us - first_us)));
    weight += one.example.weight;
    off += one.example.weight * one.example.target;
  }
  for (Measured& one : problem.candidates) {
    one.example.target -= off / weight;
    one.example.weight *= std::min(1.0, kMostWeight / weight);
  }
}

/// The candidates of a recorded space that were measured and that the model corrects.
MeasuredProblem measured(const RecordedSpace& space, const CandidateList& list,
                         const DeviceProfile& profile) {
  MeasuredProblem problem;
  const auto places = candidates_of(space, list);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const RecordedConfiguration& one = space.configurations[i];
    if (!places[i] || one.outcome != Outcome::ok) continue;
    const Candidate& candidate = list.candidates[*places[i]];
    if (candidate.demands.corrected == 0) continue;
    Reckoning reckoning = reckon(candidate, profile);
    Measured& added = problem.candidates.emplace_back();
    added.us = std::log(one.truth_us);
    added.predicted_us = std::log(reckoning.us);
    added.example.terms = std::move(reckoning.terms);
    problem.best_us = std::min(problem.best_us, added.us);
  }
  return problem;
}

std::vector<MeasuredProblem> read_problems(const Catalog& catalog, const std::string& folder,
                                           const DeviceProfile& profile) {
  std::vector<MeasuredProblem> problems;
  std::map<Alike, int> known;
  for (const RecordedSpace& space : take(read_recorded_spaces(folder))) {
    const BoundProblem bound = take(catalog.bind(take(Problem::parse(space.problem))));
    const CandidateList list = take(enumerate_candidates(catalog, bound, profile));
    MeasuredProblem problem = measured(space, list, profile);
    if (problem.candidates.size() < 2) continue;
    problem.dtype = bound.problem().text().substr(bound.problem().text().find("dtype="));
    // Golden sections deal evenly, whatever the order.
    const int number = known.emplace(alike(bound), static_cast<int>(known.size())).first->second;
    problem.part = static_cast<int>(std::fmod(number * 0.6180339887498949, 1.0) * kParts);
    for (Measured& one : problem.candidates) {
      one.example.group = static_cast<int>(problems.size());
    }
    weigh(problem);
    problems.push_back(std::move(problem));
  }
  return problems;
}

/// Fits to all problems but the ones in part `left_out`.
Correction fit(const std::vector<MeasuredProblem>& problems, const std::string& sku, int left_out) {
  std::vector<Example> examples;
  for (const MeasuredProblem& problem : problems) {
    if (problem.part == left_out) continue;
    for (const Measured& one : problem.candidates) examples.push_back(one.example);
  }
  const auto names = prediction_terms();
  return {sku, {names.begin(), names.end()}, boosted_trees(examples, {})};
}

/// Returns how many times as long as the fastest the first choice takes.
double first_choice(const MeasuredProblem& problem, const Correction* correction) {
  double least = std::numeric_limits<double>::infinity();
  double us = 0;
  for (const Measured& one : problem.candidates) {
    const double predicted =
        one.predicted_us + (correction == nullptr ? 0 : correction->log_ratio(one.example.terms));
    if (predicted < least) {
      least = predicted;
      us = one.us;
    }
  }
  return std::exp(us - problem.best_us);
}

/// Prints how the ratios are spread, and returns the same for a file.
nlohmann::ordered_json report(const char* what, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto quantile = [&ratios](double share) {
    const long place = std::lround(share * static_cast<double>(ratios.size() - 1));
    return ratios[static_cast<std::size_t>(place)];
  };
  nlohmann::ordered_json spread = {{"median", quantile(0.5)},
                                   {"p90", quantile(0.9)},
                                   {"p95", quantile(0.95)},
                                   {"most", ratios.back()}};
  std::printf("  %-20s", what);
  for (const auto& [name, ratio] : spread.items()) {
    std::printf(" %5.1f %% (%s)", 100 * (ratio.get<double>() - 1), name.c_str());
  }
  std::printf("\n");
  return spread;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "fit_correction", command_line(argc, argv), cpu_device()));
  const auto catalog = take(Catalog::load({}));
  const std::string sku = text_option(argc, argv, "--sku");
  const auto problems =
      read_problems(*catalog, text_option(argc, argv, "--logs"), take(find_profile(sku)));
  struct Ratios {
    std::vector<double> without;
    std::vector<double> with;
  };
  std::map<std::string, Ratios> by_dtype;
  for (int part = 0; part < kParts; ++part) {
    const Correction correction = fit(problems, sku, part);
    for (const MeasuredProblem& problem : problems) {
      if (problem.part != part) continue;
      Ratios& ratios = by_dtype[problem.dtype];
      ratios.without.push_back(first_choice(problem, nullptr));
      ratios.with.push_back(first_choice(problem, &correction));
    }
  }
  std::printf("how much slower than the fastest measured candidate the first choice is:\n");
  for (const auto& [dtype, ratios] : by_dtype) {
    std::printf("%s, %zu problems\n", dtype.c_str(), ratios.with.size());
    nlohmann::ordered_json row = {{"problem", dtype}, {"count", ratios.with.size()}};
    row["as_reckoned"] = report("as reckoned", ratios.without);
    row["corrected_held_out"] = report("corrected, held out", ratios.with);
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  }
  if (const auto out = option_value(argc, argv, "--out")) {
    std::ofstream file(*out);
    file << fit(problems, sku, -1).text();
    file.close();
    if (!file) fail({ErrorCode::io, concat("cannot write ", *out)});
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
