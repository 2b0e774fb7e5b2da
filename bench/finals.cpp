// Measures on a GPU how often the finals of a race are right, and how steady their measurements
// are. A twin is the same kernel with blocks that wait at the start. The wait is calibrated on the
// device and checked by a long measurement.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdlib.h>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/finals_world.h"
#include "bench/common/proportion.h"
#include "cache/stores/record_store.h"
#include "support/statistics.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "tuner/finals/interval.h"
#include "tuner/finals/race.h"
#include "tuner/finals/rounds.h"
#include "tuner/search/screening.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: finals aa [--finals 300] [--json FILE]              copies of one cubin: none may win\n"
    "       finals twin [--finals 600] [--gap 2] [--json FILE]  a twin, so many percent slower\n"
    "       finals processes [--runs 20] [--seconds 10] [--problem TEXT] [--json FILE]\n"
    "                                          fresh processes that tune the same problem\n"
    "of the first two also: --sample-ms 1.5, --problem TEXT in place of the built-in list\n";
constexpr const char* kProblems[] = {
    "vector_add n=1048576 dtype=fp32",           "vector_add n=16777216 dtype=bf16",
    "vector_add n=134217728 dtype=fp32",         "rmsnorm rows=256 columns=4096 dtype=bf16",
    "rmsnorm rows=4096 columns=8192 dtype=fp16", "rmsnorm rows=65536 columns=1024 dtype=bf16",
    "matmul m=16 n=4096 k=4096 dtype=bf16",      "matmul m=1024 n=1024 k=1024 dtype=bf16",
    "matmul m=4096 n=4096 k=4096 dtype=bf16"};
constexpr int kCopies = 8;
constexpr int kCalibrations = 8;
constexpr int kCalibrationRounds = 128;
constexpr int kTruthRounds = 400;

/// Passes samples on and no checks: they are not what is measured here.
class Unchecked final : public Runner {
 public:
  explicit Unchecked(Runner& runner) : runner_(runner) {}

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override {
    return runner_.prepare(candidate, kernel);
  }
  Result<Checked> check(Id, CheckDepth) override { return Checked{}; }
  Result<Checked> check_after_timing(Id) override { return Checked{}; }
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
    return runner_.sample(order);
  }
  Result<double> launch_gap_us(Id id) override { return runner_.launch_gap_us(id); }
  Result<Audit> audit() override { return runner_.audit(); }
  DeviceUse take_use() override { return runner_.take_use(); }
  void drop(Id id) override { runner_.drop(id); }
  bool lost() const override { return runner_.lost(); }

 private:
  Runner& runner_;
};

Runner::Id load(FinalsProblem& problem, const CompiledKernel& kernel) {
  const Runner::Prepared prepared = take(problem.runner().prepare(problem.candidate(), kernel));
  if (prepared.step.outcome != Outcome::ok) {
    fail({ErrorCode::device, concat(problem.text(), ": ", prepared.step.detail)});
  }
  return prepared.id;
}

/// How the finals of one problem came out.
struct Tally {
  int finals = 0;
  int wins = 0;
  int ties = 0;
  int right = 0;
  int wrong = 0;  ///< a win of one that is not faster
  double gpu_seconds = 0;
  std::vector<double> seconds;
  std::vector<double> rounds;
  std::vector<double> mads;                   ///< of the winner's samples, relative
  std::array<std::vector<double>, 2> probes;  ///< medians per final

  void add(const Tally& other) {
    finals += other.finals;
    wins += other.wins;
    ties += other.ties;
    right += other.right;
    wrong += other.wrong;
    gpu_seconds += other.gpu_seconds;
    seconds.insert(seconds.end(), other.seconds.begin(), other.seconds.end());
    rounds.insert(rounds.end(), other.rounds.begin(), other.rounds.end());
    mads.insert(mads.end(), other.mads.begin(), other.mads.end());
  }
};

/// One final of freshly loaded kernels. Adds everything but what is right.
RaceResult run_final(FinalsProblem& problem,
                     const std::vector<std::shared_ptr<const CompiledKernel>>& kernels,
                     std::uint64_t seed, Tally& tally) {
  Unchecked runner(problem.runner());
  std::vector<Survivor> survivors;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    Survivor survivor;
    survivor.id = load(problem, *kernels[i]);
    survivor.choice.kernel_template = concat("copy ", i);
    for (const Runner::Sampled& one : take(runner.sample(std::array{survivor.id, survivor.id}))) {
      if (one.step.outcome != Outcome::ok) fail({ErrorCode::device, one.step.detail});
      survivor.samples_us.push_back(one.sample.us);
    }
    survivor.score_us = median(survivor.samples_us);
    survivors.push_back(std::move(survivor));
  }
  const double start = steady_seconds();
  RaceOptions options;
  options.random_seed = seed;
  options.clock_seconds = steady_seconds;
  RaceResult result = take(race(runner, survivors, options));
  tally.seconds.push_back(steady_seconds() - start);
  tally.gpu_seconds += tally.seconds.back();
  for (const Survivor& survivor : survivors) runner.drop(survivor.id);
  if (result.finalists.size() != kernels.size()) {
    fail({ErrorCode::device, concat(problem.text(), ": a copy failed in the finals")});
  }
  ++tally.finals;
  tally.wins += result.decision.verdict == Verdict::win ? 1 : 0;
  tally.ties += result.decision.verdict == Verdict::tie ? 1 : 0;
  tally.rounds.push_back(static_cast<double>(result.rounds.sm_probe_us.size()));
  Measurement samples;
  for (const Sample& sample : result.finalists[result.decision.leader].samples) {
    samples.samples_us.push_back(sample.us);
  }
  tally.mads.push_back(samples.mad_us() / samples.median_us());
  tally.probes[0].push_back(median(result.rounds.sm_probe_us));
  tally.probes[1].push_back(median(result.rounds.dram_probe_us));
  return result;
}

double spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return values.empty() ? 0 : *high / *low - 1;
}

Json json_of(const Proportion& p) {
  return {{"count", p.count},
          {"of", p.trials},
          {"share", p.share()},
          {"low", p.low()},
          {"high", p.high()}};
}

Json row_of(const std::string& problem, const std::string& mode, const Tally& tally) {
  Json row = {{"problem", problem},
              {"peer", mode},
              {"finals", tally.finals},
              {"win", json_of({tally.wins, tally.finals})},
              {"tie", json_of({tally.ties, tally.finals})},
              {"right", json_of({tally.right, tally.finals})},
              {"wrong_win", json_of({tally.wrong, tally.finals})},
              {"rounds_median", median(tally.rounds)},
              {"finals_seconds_median", median(tally.seconds)},
              {"finals_seconds_max", *std::max_element(tally.seconds.begin(), tally.seconds.end())},
              {"finals_seconds_sum", tally.gpu_seconds},
              {"sample_mad_median", median(tally.mads)}};
  if (!tally.probes[0].empty()) {
    row["sm_reference_drift"] = spread(tally.probes[0]);
    row["dram_reference_drift"] = spread(tally.probes[1]);
  }
  return row;
}

void print(const std::string& name, const Tally& t) {
  const Proportion right{t.right, t.finals};
  const Proportion wrong{t.wrong, t.finals};
  std::printf(
      "%-44s %4d finals: right %6.2f %% [%.2f, %.2f], wrong wins %5.2f %% (at most %.2f), ties %d, "
      "%3.0f rounds, %.2f s, MAD %.2f %%\n",
      name.c_str(), t.finals, 100 * right.share(), 100 * right.low(), 100 * right.high(),
      100 * wrong.share(), 100 * wrong.high(), t.ties, median(t.rounds), median(t.seconds),
      100 * median(t.mads));
  std::fflush(stdout);
}

std::vector<std::string> problems_of(int argc, const char* const* argv) {
  if (auto one = option_value(argc, argv, "--problem")) return {*std::move(one)};
  return {std::begin(kProblems), std::end(kProblems)};
}

FinalsProblem open_settled(FinalsWorld& world, const std::string& text, double sample_ms) {
  FinalsProblem problem = take(FinalsProblem::open(world, text, sample_ms));
  Screening screening(problem.runner(), steady_seconds);
  take(screening.settle());
  return problem;
}

void add(BenchJson& json, Json row) {
  if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
}

void run_aa(int argc, const char* const* argv, FinalsWorld& world, BenchJson& json) {
  const std::vector<std::string> texts = problems_of(argc, argv);
  const int finals = static_cast<int>(number_option(argc, argv, "--finals", 300));
  const double sample_ms = number_option(argc, argv, "--sample-ms", 1.5);
  Tally all;
  for (std::size_t at = 0; at < texts.size(); ++at) {
    FinalsProblem problem = open_settled(world, texts[at], sample_ms);
    const auto kernel = take(problem.compile(world, 0));
    const std::vector<std::shared_ptr<const CompiledKernel>> copies(kCopies, kernel);
    Tally tally;
    const int share = finals / static_cast<int>(texts.size()) +
                      (static_cast<int>(at) < finals % static_cast<int>(texts.size()) ? 1 : 0);
    for (int i = 0; i < share; ++i) {
      const RaceResult result =
          run_final(problem, copies, 1000 * at + static_cast<std::size_t>(i), tally);
      const bool win = result.decision.verdict == Verdict::win;
      tally.wrong += win ? 1 : 0;
      tally.right += win ? 0 : 1;
    }
    print(problem.text(), tally);
    add(json, row_of(problem.text(), "aa", tally));
    all.add(tally);
  }
  print("all", all);
}

/// Measures how much slower the second kernel is, by as many alternating samples of both.
Slowdown measure_gap(FinalsProblem& problem, const CompiledKernel& kernel,
                     const CompiledKernel& twin, int rounds) {
  const Runner::Id ids[] = {load(problem, kernel), load(problem, twin)};
  std::vector<double> us[2];
  for (int round = 0; round < rounds; ++round) {
    // A B and B A in turn, so that neither always comes second.
    const int first = round % 2;
    const Runner::Id order[] = {ids[first], ids[1 - first]};
    const auto sampled = take(problem.runner().sample(order));
    for (int at = 0; at < 2; ++at) {
      const Runner::Sampled& one = sampled[static_cast<std::size_t>(at)];
      if (one.step.outcome != Outcome::ok) fail({ErrorCode::device, one.step.detail});
      us[at == 0 ? first : 1 - first].push_back(one.sample.us);
    }
  }
  for (const Runner::Id id : ids) problem.runner().drop(id);
  return paired_interval(log_times(us[1]), log_times(us[0])).slowdown;
}

struct Twin {
  std::shared_ptr<const CompiledKernel> kernel;
  long long cycles = 0;
  Slowdown gap;
};

Twin calibrate(FinalsWorld& world, FinalsProblem& problem, const CompiledKernel& kernel,
               double wanted) {
  Twin twin;
  double cycles = 200;
  for (int i = 0; i < kCalibrations; ++i) {
    twin.cycles = std::max(1LL, std::llround(cycles));
    twin.kernel = take(problem.compile(world, twin.cycles));
    const double gap = measure_gap(problem, kernel, *twin.kernel, kCalibrationRounds).estimate;
    if (std::abs(gap - wanted) < 0.05 * wanted) break;
    cycles *= std::clamp(wanted / std::max(gap, wanted / 4), 0.25, 4.0);
  }
  twin.gap = measure_gap(problem, kernel, *twin.kernel, kTruthRounds);
  return twin;
}

/// The evidence of a final's decision, which shows why a twin was not found.
Json evidence_of(const RaceResult& result) {
  Json finalists = Json::array();
  for (std::size_t i = 0; i < result.finalists.size(); ++i) {
    const auto& [estimate, low, high] = result.decision.standings[i].slowdown;
    Json us = Json::array();
    Json mhz = Json::array();
    for (const Sample& sample : result.finalists[i].samples) {
      us.push_back(sample.us);
      mhz.push_back(sample.sm_mhz);
    }
    finalists.push_back({{"contender", result.finalists[i].survivor},
                         {"bimodal", result.decision.standings[i].bimodal},
                         {"slowdown", {estimate, low, high}},
                         {"us", std::move(us)},
                         {"sm_mhz", std::move(mhz)}});
  }
  return {{"verdict", to_string(result.decision.verdict)},
          {"block_rounds", result.rounds.block_rounds},
          {"dropped", result.rounds.dropped},
          {"finalists", std::move(finalists)}};
}

void run_twin(int argc, const char* const* argv, FinalsWorld& world, BenchJson& json) {
  const std::vector<std::string> texts = problems_of(argc, argv);
  const int finals = static_cast<int>(number_option(argc, argv, "--finals", 600));
  const double percent = number_option(argc, argv, "--gap", 2);
  const double sample_ms = number_option(argc, argv, "--sample-ms", 1.5);
  // Near the margin of equivalence a tie is right as well.
  const bool tie_is_right = percent < 2;
  char mode[32];
  std::snprintf(mode, sizeof mode, "twin %g %%", percent);
  Tally all;
  int left = finals;
  for (std::size_t at = 0; at < texts.size(); ++at) {
    FinalsProblem problem = open_settled(world, texts[at], sample_ms);
    const auto kernel = take(problem.compile(world, 0));
    const Twin twin = calibrate(world, problem, *kernel, std::log1p(percent / 100));
    const double planted = std::expm1(twin.gap.estimate);
    if (planted < 0.0075 * percent || planted > 0.015 * percent) {
      // Waiting blocks meet the DRAM at other times, which may even make them faster.
      std::printf("%s: no twin, a wait of %lld cycles makes it %.2f %% slower\n", texts[at].c_str(),
                  twin.cycles, 100 * planted);
      continue;
    }
    Tally tally;
    Json not_found = Json::array();
    const int share = left / static_cast<int>(texts.size() - at);
    left -= share;
    for (int i = 0; i < share; ++i) {
      // The faster one is the first and the second survivor in turn.
      const auto faster = static_cast<std::size_t>(i % 2);
      std::vector<std::shared_ptr<const CompiledKernel>> both(2, twin.kernel);
      both[faster] = kernel;
      const RaceResult result =
          run_final(problem, both, 1000 * at + static_cast<std::size_t>(i), tally);
      const bool win = result.decision.verdict == Verdict::win;
      const bool found = result.finalists[result.decision.winner].survivor == faster;
      tally.wrong += win && !found ? 1 : 0;
      const bool right =
          (win && found) || (tie_is_right && result.decision.verdict == Verdict::tie);
      tally.right += right ? 1 : 0;
      if (!right) not_found.push_back(evidence_of(result));
    }
    print(problem.text(), tally);
    std::printf("  a wait of %lld cycles: %.2f %% slower [%.2f, %.2f]\n", twin.cycles,
                100 * std::expm1(twin.gap.estimate), 100 * std::expm1(twin.gap.low),
                100 * std::expm1(twin.gap.high));
    Json row = row_of(problem.text(), mode, tally);
    row["wait_cycles"] = twin.cycles;
    if (!not_found.empty()) row["not_found"] = std::move(not_found);
    row["gap"] = {{"estimate", std::expm1(twin.gap.estimate)},
                  {"low", std::expm1(twin.gap.low)},
                  {"high", std::expm1(twin.gap.high)}};
    add(json, std::move(row));
    all.add(tally);
  }
  print("all", all);
}

/// The result of one fresh process.
struct TunedRun {
  TuningRecord record;
  Json shares;
  int visited = 0;
};

TunedRun tune(const std::string& problem, double seconds) {
  std::string folder = (std::filesystem::temp_directory_path() / "kernwright-XXXXXX").native();
  if (::mkdtemp(folder.data()) == nullptr) fail({ErrorCode::io, "no temporary folder"});
  const auto tool = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kernwright";
  const std::string command = concat("KERNWRIGHT_CACHE='", folder, "' '", tool.native(), "' tune ",
                                     problem, " --seconds ", seconds, " --json 2>/dev/null");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) fail({ErrorCode::io, concat("cannot run ", command)});
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), n);
  }
  if (::pclose(pipe) != 0) fail({ErrorCode::device, concat(command, " failed")});
  TunedRun run;
  for (RecordStore::Listed& listed : RecordStore(folder).list()) {
    if (listed.record.value && listed.record.value->grade == RecordGrade::measured) {
      run.record = *std::move(listed.record.value);
    }
  }
  std::filesystem::remove_all(folder);
  if (run.record.winner.choice.kernel_template.empty()) {
    fail({ErrorCode::internal, concat(command, " left no measured record")});
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) fail({ErrorCode::corrupt, concat(command, " printed no JSON")});
  run.shares = json["shares"];
  for (const auto& [outcome, count] : json["outcomes"].items()) {
    if (outcome != "compile_failed" && outcome != "spilled") run.visited += count.get<int>();
  }
  return run;
}

bool declared_equal(const TuningRecord& record, const std::string& id) {
  if (record.winner.choice.id() == id) return true;
  return std::any_of(record.runners_up.begin(), record.runners_up.end(),
                     [&](const auto& ranked) { return ranked.tied && ranked.choice.id() == id; });
}

/// The medians of all configurations, measured in turn in one process, relative to the fastest.
std::vector<double> measure_again(const std::string& text, const std::vector<TunedRun>& runs) {
  FinalsWorld world = take(FinalsWorld::open());
  FinalsProblem problem = open_settled(world, text, 1.5);
  const BoundProblem bound = take(world.catalog->bind(take(Problem::parse(text))));
  std::map<std::string, Runner::Id> ids;
  for (const TunedRun& run : runs) {
    const RankedConfiguration& winner = run.record.winner;
    if (ids.contains(winner.choice.id())) continue;
    const Candidate candidate =
        take(make_candidate(*take(world.catalog->kernel_template(winner.choice.kernel_template)),
                            bound, winner.choice.configuration, world.device->profile()));
    ids[winner.choice.id()] = take(problem.load(world, candidate));
  }
  std::vector<Runner::Id> order;
  for (const auto& [id, loaded] : ids) order.push_back(loaded);
  std::vector<std::vector<double>> us(order.size());
  for (int round = 0; round < kCalibrationRounds; ++round) {
    const auto sampled = take(problem.runner().sample(order));
    for (std::size_t i = 0; i < order.size(); ++i) us[i].push_back(sampled[i].sample.us);
  }
  std::vector<double> medians;
  for (std::vector<double>& series : us) medians.push_back(median(std::move(series)));
  return medians;
}

void run_processes(int argc, const char* const* argv, BenchJson& json) {
  const std::string problem =
      option_value(argc, argv, "--problem").value_or("matmul m=4096 n=4096 k=4096 dtype=bf16");
  const int count = static_cast<int>(number_option(argc, argv, "--runs", 20));
  const double seconds = number_option(argc, argv, "--seconds", 10);
  std::vector<TunedRun> runs;
  std::map<std::string, int> winners;
  std::vector<double> finals_seconds;
  std::vector<double> visit_ms;
  for (int i = 0; i < count; ++i) {
    runs.push_back(tune(problem, seconds));
    const TunedRun& run = runs.back();
    ++winners[run.record.winner.choice.id()];
    if (run.shares.contains("finals_seconds")) {
      finals_seconds.push_back(run.shares["finals_seconds"].get<double>());
    }
    visit_ms.push_back(1000 * run.shares["measure_seconds"].get<double>() /
                       std::max(run.visited, 1));
    std::printf("%2d: %s, %s, trust %s, %.4g us\n", i + 1, run.record.winner.choice.id().c_str(),
                std::string(to_string(run.record.verdict)).c_str(),
                std::string(to_string(run.record.trust)).c_str(),
                run.record.winner.measurement.median_us());
    std::fflush(stdout);
  }
  const auto most = std::max_element(winners.begin(), winners.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  const auto agreeing =
      static_cast<int>(std::count_if(runs.begin(), runs.end(), [&](const TunedRun& run) {
        const std::string winner = run.record.winner.choice.id();
        return declared_equal(run.record, most->first) ||
               std::any_of(runs.begin(), runs.end(), [&](const TunedRun& other) {
                 return other.record.winner.choice.id() == most->first &&
                        declared_equal(other.record, winner);
               });
      }));
  const double again = spread(measure_again(problem, runs));
  const Proportion agree{agreeing, count};
  std::printf(
      "%s: %zu winners in %d processes, %d agree or tie (%.1f %%), winners measured again lie "
      "within %.2f %%, %.1f ms per visited candidate\n",
      problem.c_str(), winners.size(), count, agreeing, 100 * agree.share(), 100 * again,
      median(visit_ms));
  Json row = {{"problem", problem},
              {"peer", "processes"},
              {"seconds", seconds},
              {"winners", winners},
              {"agree", json_of(agree)},
              {"winners_spread", again},
              {"gpu_ms_per_visit", median(visit_ms)}};
  if (!finals_seconds.empty()) row["finals_seconds_median"] = median(finals_seconds);
  add(json, std::move(row));
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::string mode = argv[1];
  if (mode != "aa" && mode != "twin" && mode != "processes") {
    std::fputs(kUsage, stderr);
    return 2;
  }
  FinalsWorld world = take(FinalsWorld::open());
  const Json device = {{"name", world.device->profile().name},
                       {"uuid", world.device->identity().uuid},
                       {"driver", world.device->identity().driver_version}};
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""), "finals",
                                        command_line(argc, argv), device));
  if (mode == "aa") run_aa(argc, argv, world, json);
  if (mode == "twin") run_twin(argc, argv, world, json);
  if (mode == "processes") {
    world = {};  // the tuning processes find the device to themselves
    run_processes(argc, argv, json);
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
