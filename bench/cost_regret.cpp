// Measures how good the cost model's first choices are, and what a prediction costs. A recorded
// space is a landscape or the trial log of an exhaustive tuning. The bench puts its configurations
// in the order of today's predictions, and divides the fastest time of the first 1, 8, 16 and 32 by
// the fastest of all. It needs no GPU.
//
// A trial log has two such ratios, because the finals run at another clock than the screening. One
// is for all configurations as they were screened. The other is for the finalists, and all others
// count as if they had no time.
//
// A recorded configuration is matched with a candidate of today by the parameters that were
// recorded. A parameter that came later has its default. A configuration whose template or
// parameter is gone is left out, and counted. So is one that did not compile or spilled, which a
// first answer passes over. One that failed later keeps its place in the order.
//
// An exhaustive tuning also tries configurations that break one habit of their template. For each
// such habit the bench prints the fastest time behind it over the fastest of all others.
//
// With --families it reads records of families, one line of JSON each, and says for each size how
// much slower the choice that is predicted to be the fastest was than the fastest of those that
// were measured there.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/predicted_order.h"
#include "bench/simulation/recorded_space.h"
#include "cache/records/family_record.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "model/operation/ranged_problem.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: cost_regret --landscapes DIR [--sku h200] [--json FILE]\n"
    "       cost_regret --families FILE [--sku h200]\n";
constexpr std::array<std::size_t, 4> kFirst = {1, 8, 16, 32};

constexpr double kNever = std::numeric_limits<double>::infinity();

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

/// Adds the ratios to the row, in JSON null if none of the first has a time.
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

void report_habits(const RecordedSpace& space, const CandidateList& list) {
  double best_us = kNever;
  std::map<std::string, double> behind;
  const auto places = candidates_of(space, list);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const RecordedConfiguration& one = space.configurations[i];
    if (!places[i] || one.outcome != Outcome::ok) continue;
    const Candidate& candidate = list.candidates[*places[i]];
    const Rule* const habit = broken_habit(candidate);
    double& least = habit ? behind
                                .try_emplace(concat(candidate.kernel_template->name, ": ",
                                                    habit->expression.text()),
                                             kNever)
                                .first->second
                          : best_us;
    least = std::min(least, one.truth_us);
  }
  for (const auto& [habit, us] : behind) std::printf("  %5.3f %s\n", us / best_us, habit.c_str());
}

/// Prints and returns the regrets of the predicted choice at the sizes of a family.
std::vector<double> regrets(const FamilyRecord& record, const Catalog& catalog,
                            const DeviceProfile& profile) {
  constexpr std::ptrdiff_t kFewest = 6;  // measured kernels, for a choice that means something
  const Problem written = take(Problem::parse(record.head.key.problem));
  const RangedProblem family =
      take(RangedProblem::bind(*take(catalog.operation(written.operation())), written));
  std::vector<double> found;
  for (const auto* rows : {&record.matrix, &record.validation}) {
    for (const FamilyRow& row : *rows) {
      const auto measured = [](double us) { return us > 0; };
      if (std::ranges::count_if(row.times_us, measured) < kFewest) continue;
      const BoundProblem problem = take(family.at(row.sizes));
      double best_us = kNever;
      double taken_us = kNever;
      double least_us = kNever;
      for (std::size_t c = 0; c < record.tried.size(); ++c) {
        if (!measured(row.times_us[c])) continue;
        const auto candidate =
            make_candidate(*take(catalog.kernel_template(record.tried[c].kernel_template)), problem,
                           record.tried[c].configuration, profile);
        if (!candidate) continue;
        best_us = std::min(best_us, row.times_us[c]);
        const double us = predict_us(*candidate, profile);
        if (us < least_us) taken_us = row.times_us[c];
        least_us = std::min(least_us, us);
      }
      if (best_us == kNever) continue;
      found.push_back(taken_us / best_us - 1);
      std::printf("%6.1f %%  %s\n", 100 * found.back(), problem.text().c_str());
    }
  }
  return found;
}

int judge_families(const std::string& file, const Catalog& catalog, const DeviceProfile& profile) {
  std::ifstream lines(file);
  double sum = 0;
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    for (const double regret : regrets(take(parse_family(line)), catalog, profile)) {
      sum += regret;
      ++count;
    }
  }
  if (count == 0) fail({ErrorCode::not_found, concat(file, " has no family")});
  std::printf("mean %.2f %% of %zu sizes\n", 100 * sum / static_cast<double>(count), count);
  return 0;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::string sku = option_value(argc, argv, "--sku").value_or("h200");
  const DeviceProfile profile = take(find_profile(sku));
  const auto catalog = take(Catalog::load({}));
  if (const auto families = option_value(argc, argv, "--families")) {
    return judge_families(*families, *catalog, profile);
  }
  const auto spaces = take(read_recorded_spaces(text_option(argc, argv, "--landscapes")));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "cost_regret", command_line(argc, argv), cpu_device()));
  std::printf("%-50s %10s %9s %12s   best of the first 1, 8, 16, 32 over the best\n", "problem",
              "candidates", "left out", "a prediction");
  std::vector<double> first;
  for (const RecordedSpace& space : spaces) {
    const Problem problem = take(Problem::parse(space.problem));
    const BoundProblem bound = take(catalog->bind(problem));
    const CandidateList list = take(enumerate_candidates(*catalog, bound, profile));
    std::vector<Judged> judged = in_predicted_order(space, list);
    std::erase_if(judged, [](const Judged& one) { return !one.compiles; });
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
    first.push_back(fastest(judged, 1, &Judged::truth_us) / space.best_us());
    if (const double final_us = fastest(judged, judged.size(), &Judged::final_us);
        final_us < kNever) {
      std::printf("  finals");
      report(judged, &Judged::final_us, final_us, "final_", row);
    }
    std::printf("\n");
    report_habits(space, take(enumerate_candidates(*catalog, bound, profile, 1)));
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  }
  if (first.empty()) return 0;
  std::sort(first.begin(), first.end());
  const auto quantile = [&first](double share) {
    const long place = std::lround(share * static_cast<double>(first.size() - 1));
    return first[static_cast<std::size_t>(place)];
  };
  std::printf("the first of %zu: median %.3f, p90 %.3f, p95 %.3f, worst %.3f\n", first.size(),
              quantile(0.5), quantile(0.9), quantile(0.95), first.back());
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
