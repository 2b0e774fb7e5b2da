// Measures how much a few seconds of tuning leave on the table: whole searches of recorded spaces
// on a virtual clock, with the recorded compile times on a number of threads, under usual noise. It
// needs no GPU. The predictions are today's. Since the cost model was fitted to most recorded
// spaces, it is as far off as on others only with `--errors`: so many percent by template, and as
// many by candidate.
//
// `slower` is how much slower than the fastest of the space the winner is, and `behind` than the
// winner of the last budget. `estimate` is the record's estimate for the untried candidates. It
// covers the truth if the fastest of these is at most that much faster than the winner.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <oneapi/tbb/parallel_for.h>
#include <string>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/predicted_order.h"
#include "bench/simulation/random_stream.h"
#include "bench/simulation/virtual_session.h"
#include "cache/records/record_view.h"
#include "model/catalog/catalog.h"
#include "support/random.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: tuning_seconds --landscapes DIR [--seconds 3,10,30] [--threads 16] [--opening 0.8]\n"
    "                      [--errors PERCENT] [--repetitions 10] [--seed 1] [--json FILE]\n";
constexpr std::string_view kNoise = "samples=0.5+outliers+tick+drift=0.5";
/// Shares within this of the truth cover it: the finals cannot tell closer times apart.
constexpr double kCoverSlack = 0.01;

struct Setting {
  std::vector<double> seconds = {3, 10, 30};
  int threads = 16;
  double opening_seconds = 0.8;
  double errors = 0;  ///< of predictions, as logarithms
  std::size_t repetitions = 10;
  std::uint64_t seed = 1;
};

/// One search.
struct Run {
  double slower = 0;
  double winner_us = 0;
  double estimate = 0;
  bool covered = false;
  bool hardly_looked = false;
  int measured = 0;
};

/// The space with predictions that are off by what they are off elsewhere.
RecordedSpace with_errors(RecordedSpace space, double errors, std::uint64_t seed) {
  if (errors <= 0) return space;
  RandomStream random(seed);
  std::vector<double> of_template;
  for (std::size_t i = 0; i < space.templates.size(); ++i) of_template.push_back(random.normal());
  for (RecordedConfiguration& one : space.configurations) {
    const double error = of_template[static_cast<std::size_t>(one.kernel_template)];
    one.predicted_us *= std::exp(errors * (error + random.normal()));
  }
  return space;
}

Run tune(const RecordedSpace& recorded, double seconds, const Setting& setting,
         std::uint64_t seed) {
  const RecordedSpace space = with_errors(recorded, setting.errors, seed);
  VirtualSession session(space, parse_noise(kNoise).value(), seed, setting.threads);
  session.options.strategy = "portfolio";
  session.options.budget.seconds = seconds;
  session.options.budget.opening_seconds = setting.opening_seconds;
  const TuningResult found = take(session.run());
  const TuningRecord& record = found.record;
  std::vector<bool> tried(space.configurations.size(), false);
  for (const Trial& trial : found.trials) tried[session.index_of(trial.choice)] = true;
  double fastest_us = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const RecordedConfiguration& one = space.configurations[i];
    if (!tried[i] && one.outcome == Outcome::ok) fastest_us = std::min(fastest_us, one.truth_us);
  }
  const double winner_us = space.configurations[session.index_of(record.winner.choice)].truth_us;
  return {.slower = session.regret(record),
          .winner_us = winner_us,
          .estimate = record.search.regret_estimate,
          .covered = record.search.regret_estimate + kCoverSlack >= winner_us / fastest_us - 1,
          .hardly_looked = hardly_looked(record),
          .measured = record.measured};
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      std::lround(share * static_cast<double>(values.size() - 1)))];
}

/// `last`: the same searches with the last budget.
nlohmann::ordered_json figures(const std::string& space, double seconds, double errors,
                               const std::vector<Run>& runs, const std::vector<Run>& last) {
  std::vector<double> behind;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    behind.push_back(runs[i].winner_us / last[i].winner_us - 1);
  }
  std::vector<double> slower;
  std::vector<double> measured;
  std::vector<double> estimates;
  double covered = 0;
  double hardly = 0;
  for (const Run& run : runs) {
    slower.push_back(run.slower);
    measured.push_back(run.measured);
    estimates.push_back(run.estimate);
    covered += run.covered ? 1 : 0;
    hardly += run.hardly_looked ? 1 : 0;
  }
  const auto count = static_cast<double>(runs.size());
  return {{"problem", concat(space, " ", seconds, " s errors=", 100 * errors)},
          {"space", space},
          {"seconds", seconds},
          {"searches", runs.size()},
          {"measured", quantile(measured, 0.5)},
          {"slower_median", quantile(slower, 0.5)},
          {"slower_p90", quantile(slower, 0.9)},
          {"slower_most", quantile(slower, 1)},
          {"behind_p90", quantile(behind, 0.9)},
          {"estimate", quantile(estimates, 0.5)},
          {"covered", covered / count},
          {"hardly_looked", hardly / count}};
}

void print(const nlohmann::ordered_json& row) {
  const auto value = [&row](const char* name) { return row.at(name).get<double>(); };
  std::printf(
      "%-36s %5.1f s %5.0f measured  slower by %5.1f %% (p90 %5.1f, most %5.1f)  behind by %5.1f "
      "%% "
      "(p90)  estimate %5.1f %%, covers %3.0f %%, hardly looked %3.0f %%\n",
      row["space"].get<std::string>().c_str(), value("seconds"), value("measured"),
      100 * value("slower_median"), 100 * value("slower_p90"), 100 * value("slower_most"),
      100 * value("behind_p90"), 100 * value("estimate"), 100 * value("covered"),
      100 * value("hardly_looked"));
  std::fflush(stdout);
}

Setting read_setting(int argc, const char* const* argv) {
  Setting setting;
  if (const auto given = option_value(argc, argv, "--seconds")) {
    setting.seconds.clear();
    for (const std::string_view one : split(*given, ',')) {
      setting.seconds.push_back(std::stod(std::string(one)));
    }
  }
  setting.threads = static_cast<int>(integer_option(argc, argv, "--threads", setting.threads));
  setting.opening_seconds = number_option(argc, argv, "--opening", setting.opening_seconds);
  setting.errors = number_option(argc, argv, "--errors", 0) / 100;
  setting.repetitions = static_cast<std::size_t>(
      integer_option(argc, argv, "--repetitions", static_cast<std::int64_t>(setting.repetitions)));
  setting.seed = static_cast<std::uint64_t>(
      integer_option(argc, argv, "--seed", static_cast<std::int64_t>(setting.seed)));
  return setting;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const Setting setting = read_setting(argc, argv);
  const DeviceProfile profile = take(find_profile("h200"));
  const auto catalog = take(Catalog::load({}));
  std::vector<RecordedSpace> spaces;
  for (const RecordedSpace& space :
       take(read_recorded_spaces(text_option(argc, argv, "--landscapes")))) {
    const Problem problem = take(Problem::parse(space.problem));
    RecordedSpace today = predicted_today(
        space, take(enumerate_candidates(*catalog, take(catalog->bind(problem)), profile)));
    if (!today.configurations.empty()) spaces.push_back(std::move(today));
  }
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "tuning_seconds", command_line(argc, argv), cpu_device()));
  const auto record = [&](nlohmann::ordered_json row) {
    print(row);
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  };
  const std::size_t searches = spaces.size() * setting.repetitions;
  std::vector<std::vector<Run>> runs(setting.seconds.size(), std::vector<Run>(searches));
  for (std::size_t budget = 0; budget < setting.seconds.size(); ++budget) {
    oneapi::tbb::parallel_for(std::size_t{0}, searches, [&](std::size_t i) {
      runs[budget][i] = tune(spaces[i / setting.repetitions], setting.seconds[budget], setting,
                             hash_at(setting.seed, i % setting.repetitions));
    });
  }
  for (std::size_t budget = 0; budget < setting.seconds.size(); ++budget) {
    const double seconds = setting.seconds[budget];
    for (std::size_t i = 0; i < spaces.size(); ++i) {
      const auto of_space = [&](const std::vector<Run>& all) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * setting.repetitions);
        return std::vector<Run>(first, first + static_cast<std::ptrdiff_t>(setting.repetitions));
      };
      record(figures(spaces[i].name, seconds, setting.errors, of_space(runs[budget]),
                     of_space(runs.back())));
    }
    record(figures("all", seconds, setting.errors, runs[budget], runs.back()));
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
