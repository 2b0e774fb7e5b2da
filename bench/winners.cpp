// Checks the winners of all records of a cache again, at small odd sizes of their operations. It is
// for compute-sanitizer, under which whole tunings would take hours.
//
// Each kernel is checked once per dtype, at the first of its operation's sizes at which it is a
// candidate, or at its own size. Run-time parameters may differ there. Exit status 1: a kernel
// failed, or is not a candidate any more.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/common/command.h"
#include "bench/common/finals_world.h"
#include "cache/stores/record_store.h"
#include "compile/render.h"
#include "model/candidate/candidate_maker.h"
#include "support/text.h"
#include "tuner/measure/device_runner.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {
namespace {

constexpr const char* kUsage = "usage: winners --cache DIR [--only TEMPLATE]\n";

constexpr struct {
  std::string_view operation;
  std::string_view sizes;
} kSizes[] = {{"matmul", "m=515 n=776 k=1096"},
              {"matmul", "m=13 n=776 k=1096"},
              {"matmul", "m=1 n=776 k=1096"},
              {"matmul", "m=13 n=8200 k=2056"},
              {"matmul", "m=257 n=333 k=517"},
              {"matmul", "m=515 n=1152 k=1096"},
              {"rmsnorm", "rows=301 columns=4104"},
              {"rmsnorm", "rows=77 columns=771"},
              {"rmsnorm", "rows=5 columns=30001"},
              {"bias_activation", "rows=301 columns=4104"},
              {"bias_activation", "rows=77 columns=771"},
              {"bias_activation", "rows=5003 columns=72"},
              {"elementwise", "n=1000003"},
              {"elementwise", "n=1000008"},
              {"gated_activation", "rows=301 columns=4104"},
              {"gated_activation", "rows=77 columns=771"},
              {"gated_activation", "rows=5003 columns=72"},
              {"rmsnorm", "rows=3001 columns=1032"},
              {"rmsnorm", "rows=3001 columns=1024"},
              {"layernorm", "rows=301 columns=4104"},
              {"layernorm", "rows=77 columns=771"},
              {"layernorm", "rows=5 columns=30001"},
              {"layernorm", "rows=3001 columns=1032"},
              {"layernorm", "rows=3001 columns=1024"},
              {"softmax", "rows=301 columns=4104"},
              {"softmax", "rows=77 columns=771"},
              {"softmax", "rows=5 columns=30001"},
              {"softmax", "rows=3001 columns=1032"},
              {"softmax", "rows=3001 columns=1024"},
              {"rmsnorm", "rows=5 columns=131072"},
              {"layernorm", "rows=5 columns=131072"},
              {"softmax", "rows=5 columns=131072"},
              {"reduce", "rows=301 columns=4104"},
              {"reduce", "rows=77 columns=771"},
              {"reduce", "rows=5 columns=30001"},
              {"reduce", "rows=3001 columns=1032"},
              {"reduce", "rows=5 columns=131072"},
              {"rope", "tokens=301 heads=7 kv_heads=3 head_dim=128"},
              {"rope", "tokens=77 heads=5 kv_heads=1 head_dim=6"},
              {"vector_add", "n=1000003"},
              {"vector_add", "n=1000008"}};

/// Returns sizes of an operation, beginning with those that most kernels fit. Sizes of a product
/// with few rows require that no lower tile would hold them, and that parts of k are long enough:
/// hence so many.
std::vector<std::string> sizes_of(std::string_view operation) {
  std::vector<std::string> sizes;
  for (const auto& [name, size] : kSizes) {
    if (name == operation) sizes.emplace_back(size);
  }
  if (operation != "matmul") return sizes;
  for (const int k : {440, 1096, 2056, 4104, 16520, 52232}) {
    for (const int many : {1000, 72, 8200, 28680}) {
      for (int few = 5; few < 256; few += 8) {
        sizes.push_back(concat("m=", few, " n=", many, " k=", k));
        sizes.push_back(concat("m=", many, " n=", few, " k=", k));
      }
    }
    sizes.push_back(concat("m=528 n=776 k=", k));
  }
  return sizes;
}

/// Returns the launches of the kernel that `winner` compiles to; none if its template has changed.
std::vector<Configuration> launches_of(const KernelTemplate& made, const Configuration& winner) {
  using Values = std::vector<std::pair<std::string, std::int64_t>>;
  std::vector<Values> launches(1);
  for (const Parameter& parameter : made.space.parameters()) {
    std::vector<Values> longer;
    for (const auto& launch : launches) {
      for (const std::int64_t value : parameter.values) {
        const bool same = winner.contains(parameter.name) && winner.at(parameter.name) == value;
        if (parameter.binding == Binding::compile && !same) continue;
        longer.push_back(launch);
        longer.back().emplace_back(parameter.name, value);
      }
    }
    launches = std::move(longer);
  }
  return {launches.begin(), launches.end()};
}

/// `small` with the flags of `tuned`, and with its batch, leading dimensions and widths of k and v
/// at small values.
Problem like(const Problem& small, const Problem& tuned) {
  constexpr std::int64_t kMatrices = 3;
  constexpr std::int64_t kPitch = 104472;  // beyond every extent of the sizes above, twice
  constexpr std::int64_t kWidth = 64;      // what it leaves of 1152 columns is a multiple of it too
  Problem::Dims dims = small.dims();
  const bool split = std::any_of(tuned.flags().begin(), tuned.flags().end(),
                                 [](const auto& flag) { return flag.first == "split"; });
  if (split) dims.emplace_back("n_kv", kWidth);
  for (const auto& [name, value] : tuned.dims()) {
    const bool sized =
        std::any_of(dims.begin(), dims.end(), [&](const auto& dim) { return dim.first == name; });
    if (!sized) dims.emplace_back(name, name == "batch" ? kMatrices : kPitch);
  }
  return Problem::make(small.operation(), std::move(dims), tuned.flags());
}

class Bench {
 public:
  explicit Bench(FinalsWorld world) : world_(std::move(world)) {}

  /// Prints how it went; returns false if it failed or could not be checked.
  bool check(const Problem& tuned, const RankedConfiguration& winner);

 private:
  bool check_at(const Candidate& candidate);

  FinalsWorld world_;
  std::set<std::string> done_;
};

bool Bench::check(const Problem& tuned, const RankedConfiguration& winner) {
  const KernelTemplate& made =
      *take(world_.catalog->kernel_template(winner.choice.kernel_template));
  const std::vector<Configuration> launches = launches_of(made, winner.choice.configuration);
  std::vector<Problem> problems;
  for (const std::string& size : sizes_of(tuned.operation())) {
    problems.push_back(like(take(Problem::parse(concat(tuned.operation(), " ", size))), tuned));
  }
  problems.push_back(tuned);
  for (const Problem& one : problems) {
    const auto problem = world_.catalog->bind(one);
    if (!problem) continue;
    const CandidateMaker maker(made, *problem, world_.device->profile());
    for (const Configuration& launch : launches) {
      if (!maker.obeys_rules(launch)) continue;
      const auto candidate = maker.make(launch);
      if (!candidate) continue;
      if (!done_.insert(concat(problem->text(), ": ", candidate->id())).second) return true;
      return check_at(*candidate);
    }
  }
  std::printf("%s: no candidate even where it was tuned\n", winner.choice.id().c_str());
  return false;
}

bool Bench::check_at(const Candidate& candidate) {
  DeviceRunnerOptions options;
  options.policy.l2 = L2State::warm;
  const auto runner = take(open_device_runner(*world_.device, *world_.data_ops, *candidate.problem,
                                              *world_.catalog, *world_.pool, options));
  const auto kernel =
      take(world_.pool->submit(render(candidate, *world_.catalog, world_.device->profile().sm_arch))
               .get());
  const Runner::Prepared prepared = take(runner->prepare(candidate, *kernel));
  Runner::Step step = prepared.step;
  if (step.outcome == Outcome::ok) {
    step = take(runner->check(prepared.id, Runner::CheckDepth::finalist)).step;
  }
  std::printf("%s: %s: %s %s\n", candidate.problem->text().c_str(), candidate.id().c_str(),
              std::string(to_string(step.outcome)).c_str(), step.detail.c_str());
  std::fflush(stdout);
  return step.outcome == Outcome::ok;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::string cache = text_option(argc, argv, "--cache");
  const auto only = option_value(argc, argv, "--only");
  Bench bench(take(FinalsWorld::open()));
  int failed = 0;
  int checked = 0;
  for (const RecordStore::Listed& listed : RecordStore(cache).list()) {
    if (!listed.record.value) continue;
    const TuningRecord& record = *listed.record.value;
    if (only && record.winner.choice.kernel_template != *only) continue;
    ++checked;
    if (!bench.check(take(Problem::parse(record.key.problem)), record.winner)) ++failed;
  }
  std::printf("%d records, %d failed\n", checked, failed);
  return failed > 0 || checked == 0 ? 1 : 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
