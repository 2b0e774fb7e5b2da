// Checks the winners of all records of a cache again, at sizes of their operations' cases. It is
// for compute-sanitizer, under which whole tunings would take hours.
//
// Each kernel is checked once per dtype, at the first of these sizes at which it is a candidate, or
// at its own size. Run-time parameters may differ there. Exit status 1: a kernel
// failed, or is not a candidate any more.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
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

/// Returns problems of an operation that are small enough for a sanitizer: those of its cases, the
/// largest first, and of a product more. Sizes of a product with few rows require that no lower
/// tile would hold them, and that parts of k are long enough: hence so many.
std::vector<Problem> small_problems(const Catalog& catalog, const Operation& operation) {
  constexpr std::int64_t kMostFlops = 1'000'000'000;
  std::vector<std::pair<std::int64_t, Problem>> counted;
  for (const OperationCase& one : operation.cases) {
    for (const std::string& text : one.few()) {
      const BoundProblem problem = take(catalog.bind(take(Problem::parse(text))));
      const std::int64_t flops = take(operation.flops.evaluate(problem.scope()));
      if (flops <= kMostFlops) counted.emplace_back(flops, problem.problem());
    }
  }
  std::stable_sort(counted.begin(), counted.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Problem> problems;
  for (auto& [flops, problem] : counted) problems.push_back(std::move(problem));
  if (operation.name != "matmul") return problems;
  const auto add = [&](int m, int n, int k) {
    problems.push_back(take(Problem::parse(concat("matmul m=", m, " n=", n, " k=", k))));
  };
  for (const int k : {440, 1096, 2056, 4104, 16520, 52232}) {
    for (const int many : {1000, 72, 8200, 28680}) {
      for (int few = 5; few < 256; few += 8) {
        add(few, many, k);
        add(many, few, k);
      }
    }
    add(528, 776, k);
  }
  return problems;
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
  constexpr std::int64_t kPitch = 104472;  // beyond every extent of a small product, twice
  constexpr std::int64_t kWidth = 64;      // of some columns it leaves a multiple of it too
  Problem::Dims dims = small.dims();
  const bool split = std::any_of(tuned.flags().begin(), tuned.flags().end(),
                                 [](const auto& flag) { return flag.first == "split"; });
  const auto sized = [&](const std::string& name) {
    return std::any_of(dims.begin(), dims.end(),
                       [&](const auto& dim) { return dim.first == name; });
  };
  if (split && !sized("n_kv")) dims.emplace_back("n_kv", kWidth);
  for (const auto& [name, value] : tuned.dims()) {
    if (!sized(name)) dims.emplace_back(name, name == "batch" ? kMatrices : kPitch);
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
  const Operation& operation = *take(world_.catalog->operation(made.operation));
  for (const Problem& small : small_problems(*world_.catalog, operation)) {
    problems.push_back(like(small, tuned));
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
