// How good the cost model's first choices are, and what a prediction costs: of each recorded space,
// a landscape or the trial log of an exhaustive tuning, the fastest of the first 1, 8, 16 and 32
// candidates in the order of today's predictions, over the fastest of all. Needs no GPU.
//
// A trial log has two such ratios, since the finals run at another clock than the screening: of all
// as they were screened, and of the finalists alone, the others counting as if they had no time.
//
// Recorded configurations are matched with today's candidates by the parameters that were recorded;
// those whose template or parameter is gone are left out, and counted; a parameter that came later
// is at its default. One that failed takes its place among the first all the same.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/recorded_space.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

constexpr const char* kUsage = "usage: cost_regret --landscapes DIR [--sku h200] [--json FILE]\n";
constexpr std::array<std::size_t, 4> kFirst = {1, 8, 16, 32};

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A candidate that was recorded: the model's time and the true one, infinite where it failed.
struct Judged {
  double predicted_us = 0;
  double truth_us = kNever;
  double final_us = kNever;  ///< of a trial log, where it was no finalist
};

/// Template and the values of `names`, of which a configuration may have more.
std::string key(std::string_view kernel_template, const Configuration& configuration,
                const Configuration& names) {
  std::string text(kernel_template);
  for (const auto& [name, recorded] : names.values()) {
    const auto& values = configuration.values();
    const auto found = std::find_if(values.begin(), values.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == values.end()) return "";
    text += concat(" ", name, "=", found->second);
  }
  return text;
}

/// Of each template any configuration that was recorded, for the names of its parameters.
std::map<std::string, Configuration> recorded_names(const RecordedSpace& space) {
  std::map<std::string, Configuration> names;
  for (const RecordedConfiguration& one : space.configurations) {
    names.emplace(space.templates[static_cast<std::size_t>(one.kernel_template)],
                  one.configuration);
  }
  return names;
}

/// In the order of the predictions.
std::vector<Judged> judge(const RecordedSpace& space, const CandidateList& list) {
  const auto names = recorded_names(space);
  // Of candidates that differ only in what was not recorded, that with the defaults stands for what
  // was there before such a parameter.
  std::map<std::string, std::pair<int, double>> predicted;
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    const Candidate& candidate = list.candidates[i];
    const auto known = names.find(candidate.kernel_template->name);
    if (known == names.end()) continue;
    const std::pair found(distance_from_default(candidate), list.predicted_us[i]);
    const auto [place, added] =
        predicted.emplace(key(known->first, candidate.configuration, known->second), found);
    if (!added) place->second = std::min(place->second, found);
  }
  std::vector<Judged> judged;
  for (const RecordedConfiguration& one : space.configurations) {
    const std::string& name = space.templates[static_cast<std::size_t>(one.kernel_template)];
    const auto found = predicted.find(key(name, one.configuration, names.at(name)));
    if (found == predicted.end()) continue;
    Judged& added = judged.emplace_back();
    added.predicted_us = found->second.second;
    if (one.outcome == Outcome::ok) added.truth_us = one.truth_us;
    if (one.final_us > 0) added.final_us = one.final_us;
  }
  std::stable_sort(judged.begin(), judged.end(), [](const Judged& a, const Judged& b) {
    return a.predicted_us < b.predicted_us;
  });
  return judged;
}

/// Of the first `count`.
double fastest(const std::vector<Judged>& judged, std::size_t count, double Judged::* time) {
  double us = kNever;
  for (std::size_t i = 0; i < std::min(count, judged.size()); ++i) {
    us = std::min(us, judged[i].*time);
  }
  return us;
}

/// Microseconds that the model takes for one of the candidates, the least of a few passes over all.
double prediction_us(const CandidateList& list, const DeviceProfile& profile) {
  constexpr int kPasses = 5;
  double least_us = kNever;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    double sum = 0;
    for (const Candidate& candidate : list.candidates) sum += predict_us(candidate, profile);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (sum > 0) {
      least_us = std::min(least_us, took.count() / static_cast<double>(list.candidates.size()));
    }
  }
  return least_us;
}

/// Adds the ratios to the row, in JSON null where none of the first has a time.
void report(const std::vector<Judged>& judged, double Judged::* time, double best_us,
            const char* prefix, nlohmann::ordered_json& row) {
  row[concat(prefix, "best_us")] = best_us;
  for (const std::size_t count : kFirst) {
    const double regret = fastest(judged, count, time) / best_us;
    nlohmann::ordered_json& field = row[concat(prefix, "first_", count)];
    if (regret < kNever) field = regret;
    std::printf(" %5.3f", regret);
  }
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const auto spaces = take(read_recorded_spaces(text_option(argc, argv, "--landscapes")));
  const std::string sku = option_value(argc, argv, "--sku").value_or("h200");
  const DeviceProfile profile = take(find_profile(sku));
  const auto catalog = take(Catalog::load({}));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "cost_regret", command_line(argc, argv), cpu_device()));
  std::printf("%-50s %10s %9s %12s   best of the first 1, 8, 16, 32 over the best\n", "problem",
              "candidates", "left out", "a prediction");
  for (const RecordedSpace& space : spaces) {
    const Problem problem = take(Problem::parse(space.problem));
    const Operation& operation = *take(catalog->operation(problem.operation()));
    const CandidateList list = take(
        enumerate_candidates(*catalog, operation, take(operation.normalize(problem)), profile));
    const std::vector<Judged> judged = judge(space, list);
    const std::size_t recorded = space.configurations.size();
    if (judged.empty()) {
      std::printf("%-50s none of %zu is a candidate today\n", problem.text().c_str(), recorded);
      continue;
    }
    nlohmann::ordered_json row = {{"problem", problem.text()},
                                  {"candidates", judged.size()},
                                  {"left_out", recorded - judged.size()},
                                  {"prediction_us", prediction_us(list, profile)}};
    std::printf("%-50s %10zu %9zu %9.2f us  ", problem.text().c_str(), judged.size(),
                recorded - judged.size(), row["prediction_us"].get<double>());
    report(judged, &Judged::truth_us, space.best_us(), "", row);
    if (const double final_us = fastest(judged, judged.size(), &Judged::final_us);
        final_us < kNever) {
      std::printf("  finals");
      report(judged, &Judged::final_us, final_us, "final_", row);
    }
    std::printf("\n");
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
