// Compares the kernels that two builds of the project compile for published winners. `write` keeps
// the compiled kernels and needs no GPU. `compare` compiles the same winners again and prints how
// many have the same bits. It times the others in turn in one process, cold, and needs a GPU if
// there are such; each passes the checks first. Exit status 1: a kernel fails its checks, or spills
// more, or is slower than `--tolerance` allows.

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/finals_world.h"
#include "cache/stores/artifact_store.h"
#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "compile/render.h"
#include "device/cuda/cuda_device.h"
#include "model/candidate/candidate_maker.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/statistics.h"
#include "support/text.h"
#include "tuner/measure/device_runner.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: kernel_versions write --results FILE[,FILE...] --kernels DIR [--sku h200]\n"
    "       kernel_versions compare --results FILE[,FILE...] --kernels DIR [--sku h200]\n"
    "                       [--rounds 60] [--tolerance 0.01] [--json FILE]\n"
    "FILE: results of a bench, whose rows have a \"problem\" and a \"winner\"\n";
constexpr double kSampleMs = 1.5;

/// A row of results: a problem and the kernel that won it.
struct Winner {
  std::string problem;
  std::string choice;  ///< "matmul/tiled BM=128 ..."

  std::string key() const { return digest_of(concat(problem, ": ", choice)).hex(); }
};

std::vector<std::string> words_of(std::string text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(std::move(text));
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::vector<Winner> read_winners(const std::string& files) {
  std::map<std::string, std::string> winners;
  for (const std::string& file : words_of(files, ',')) {
    const Json document = Json::parse(take(read_file(file)));
    for (const Json& row : document.at("rows")) {
      if (row.contains("winner") && row["winner"].is_string()) {
        winners.emplace(row.at("problem"), row["winner"]);
      }
    }
  }
  std::vector<Winner> listed;
  for (const auto& [problem, choice] : winners) listed.push_back({problem, choice});
  return listed;
}

/// Makes a winner's candidate as this build has it. Parameters that this build's template does not
/// have are left out; those that the winner does not name have their default. Errors: the
/// template's rules.
Result<Candidate> make(const Winner& winner, const Catalog& catalog, const DeviceProfile& profile) {
  std::vector<std::string> words = words_of(winner.choice, ' ');
  const KernelTemplate& made = *take(catalog.kernel_template(words.front()));
  std::vector<std::pair<std::string, std::int64_t>> values;
  for (const Parameter& parameter : made.space.parameters()) {
    std::int64_t value = made.default_configuration.at(parameter.name);
    for (const std::string& word : words) {
      if (word.rfind(concat(parameter.name, "="), 0) == 0) {
        value = std::stoll(word.substr(parameter.name.size() + 1));
      }
    }
    values.emplace_back(parameter.name, value);
  }
  const BoundProblem problem = take(catalog.bind(take(Problem::parse(winner.problem))));
  return make_candidate(made, problem, Configuration(std::move(values)), profile);
}

/// A winner that both builds make, to different bits.
struct Pair {
  Winner winner;
  Candidate made;
  std::array<std::shared_ptr<const CompiledKernel>, 2> kernels;  ///< before and now
};

std::string text_of(const Resources& resources) {
  return concat(resources.registers, " registers, ", resources.spill_bytes(), " spilled");
}

class Bench {
 public:
  Bench(int argc, const char* const* argv)
      : winners_(read_winners(text_option(argc, argv, "--results"))),
        store_(text_option(argc, argv, "--kernels")),
        profile_(take(find_profile(option_value(argc, argv, "--sku").value_or("h200")))),
        catalog_(take(Catalog::load({}))),
        pool_(std::make_unique<CompilePool>(make_toolkit_compiler(), CompilePoolOptions{})),
        rounds_(static_cast<int>(integer_option(argc, argv, "--rounds", 60))),
        tolerance_(number_option(argc, argv, "--tolerance", 0.01)) {}

  int write();
  int compare(int argc, const char* const* argv);

 private:
  struct Compiling {
    Winner winner;
    Candidate made;
    Build kernel;
  };
  /// Compiles the winners that this build still makes; says which it does not.
  std::vector<Compiling> compile();
  /// Returns the median microseconds of both kernels; nothing if one fails.
  std::optional<std::array<double, 2>> time(const Pair& pair, FinalsWorld& world) const;

  std::vector<Winner> winners_;
  ArtifactStore store_;
  DeviceProfile profile_;
  std::shared_ptr<const Catalog> catalog_;
  std::unique_ptr<CompilePool> pool_;
  int rounds_;
  double tolerance_;
};

std::vector<Bench::Compiling> Bench::compile() {
  std::vector<Compiling> compiling;
  for (const Winner& winner : winners_) {
    auto made = make(winner, *catalog_, profile_);
    if (!made) {
      std::printf("%s: %s: not made: %s\n", winner.problem.c_str(), winner.choice.c_str(),
                  made.error().message.c_str());
      continue;
    }
    CompileRequest request = render(*made, *catalog_, profile_.sm_arch);
    compiling.push_back({winner, std::move(made).value(), pool_->submit(std::move(request))});
  }
  return compiling;
}

int Bench::write() {
  int written = 0;
  for (Compiling& one : compile()) {
    if (auto put = store_.put(one.winner.key(), *take(one.kernel.get())); !put) fail(put.error());
    ++written;
  }
  std::printf("%d of %zu kernels written\n", written, winners_.size());
  return written > 0 ? 0 : 1;
}

std::optional<std::array<double, 2>> Bench::time(const Pair& pair, FinalsWorld& world) const {
  DeviceRunnerOptions options;
  options.sample_ms = kSampleMs;
  const auto runner = take(open_device_runner(*world.device, *world.data_ops, *pair.made.problem,
                                              *world.catalog, *world.pool, options));
  std::vector<Runner::Id> order;
  for (const auto& kernel : pair.kernels) {
    const Runner::Prepared prepared = take(runner->prepare(pair.made, *kernel));
    Runner::Step step = prepared.step;
    if (step.outcome == Outcome::ok) {
      step = take(runner->check(prepared.id, Runner::CheckDepth::screening)).step;
    }
    if (step.outcome != Outcome::ok) {
      std::printf("  %s: %s\n", std::string(to_string(step.outcome)).c_str(), step.detail.c_str());
      return std::nullopt;
    }
    order.push_back(prepared.id);
  }
  std::array<std::vector<double>, 2> us;
  for (int round = 0; round < rounds_; ++round) {
    const std::size_t first = static_cast<std::size_t>(round) % 2;
    const std::vector<Runner::Id> turn = {order[first], order[1 - first]};
    const auto sampled = take(runner->sample(turn));
    us[first].push_back(sampled[0].sample.us);
    us[1 - first].push_back(sampled[1].sample.us);
  }
  return std::array{median(std::move(us[0])), median(std::move(us[1]))};
}

int Bench::compare(int argc, const char* const* argv) {
  int same = 0;
  int missing = 0;
  int bad = 0;
  std::vector<Pair> pairs;
  for (Compiling& one : compile()) {
    auto before = store_.get(one.winner.key());
    if (!before.value) {
      ++missing;
      continue;
    }
    const auto now = take(one.kernel.get());
    if (before.value->bits == now->bits) {
      ++same;
      continue;
    }
    const auto kept = std::make_shared<const CompiledKernel>(std::move(*before.value));
    pairs.push_back({std::move(one.winner), std::move(one.made), {kept, now}});
  }
  std::printf("%d with the same bits, %zu with others, %d not written before\n", same, pairs.size(),
              missing);
  if (pairs.empty()) return same > 0 ? 0 : 1;

  auto opened = FinalsWorld::open();
  BenchJson json = take(BenchJson::open(
      option_value(argc, argv, "--json").value_or(""), "kernel_versions", command_line(argc, argv),
      opened ? Json{{"name", opened->device->profile().name}} : cpu_device()));
  for (const Pair& pair : pairs) {
    const Resources before = pair.kernels[0]->resources();
    const Resources now = pair.kernels[1]->resources();
    Json row = {{"problem", pair.winner.problem},
                {"winner", pair.winner.choice},
                {"registers_before", before.registers},
                {"registers", now.registers},
                {"spill_bytes_before", before.spill_bytes()},
                {"spill_bytes", now.spill_bytes()}};
    std::printf("%s: %s\n  %s; now %s", pair.winner.problem.c_str(), pair.winner.choice.c_str(),
                text_of(before).c_str(), text_of(now).c_str());
    bool good = now.spill_bytes() <= before.spill_bytes();
    if (opened) {
      const auto us = time(pair, *opened);
      good = good && us && (*us)[1] <= (*us)[0] * (1 + tolerance_);
      if (us) {
        std::printf("; %.3f us; now %.3f us, %.4f times", (*us)[0], (*us)[1], (*us)[1] / (*us)[0]);
        row["ours_us"] = (*us)[1];
        row["peer"] = "before";
        row["peer_us"] = (*us)[0];
      }
    }
    std::printf("%s\n", good ? "" : "  <-- worse");
    std::fflush(stdout);
    if (!good) ++bad;
    if (auto added = json.add(std::move(row)); !added) fail(added.error());
  }
  std::printf("%d of %zu are worse\n", bad, pairs.size());
  return bad > 0 ? 1 : opened ? 0 : kCannotRun;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  const std::string_view mode = argv[1];
  expect_options(argc - 1, argv + 1, kUsage);
  Bench bench(argc - 1, argv + 1);
  if (mode == "write") return bench.write();
  if (mode == "compare") return bench.compare(argc - 1, argv + 1);
  std::fputs(kUsage, stderr);
  return 2;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
