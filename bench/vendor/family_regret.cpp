// Compares the kernels of families with the best that is found at random sizes of their ranges: the
// winner of a tuning of that size alone and, of plain products, cuBLASLt's algorithms. All are
// measured in one process and in turn, with a cold L2 and random data, after each was checked.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/contest.h"
#include "bench/common/cublaslt.h"
#include "service/serve/core.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/family_fit.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: family_regret --cache DIR --families LIST [--sizes N] [--seed S] [--alone SECONDS]\n"
    "                     [--seconds N] [--predicted] [--json FILE]\n"
    "       LIST has problems with ranges, 'matmul m=1..8192 n=4096 k=4096 dtype=bf16;...'\n"
    "       --seconds: of tuning a family without a record; --alone: of tuning each size too\n"
    "       --predicted: families are not tuned, and the cache should have no record of them\n";
constexpr int kRounds = 21;
constexpr int kSelectionRounds = 5;
constexpr std::int64_t kWorkspaceBytes = 64 << 20;

/// All that is compared at one size.
class Field {
 public:
  Field(BenchDevice& device, const Contest& contest, std::shared_ptr<DeviceBuffer> workspace)
      : device_(device), contest_(contest), workspace_(std::move(workspace)) {}

  /// Enters a kernel, unless it is wrong, which is an error. It gets `scalars` behind the tensors.
  Result<void> enter(std::string name, const Kernel& kernel, const std::vector<Scalar>& scalars) {
    if (kernel.workspace_bytes() > workspace_->bytes()) {
      KW_ASSIGN(workspace_, device_.device->allocate(kernel.workspace_bytes()));
    }
    Competitor& entered = all_.emplace_back();
    entered.name = std::move(name);
    entered.launch = [this, kernel, scalars, workspace = workspace_](CUstream stream, int set) {
      const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
      std::vector<Arg> tensors;
      for (std::size_t i = 0; i < contest_.sets().shapes().size(); ++i) {
        tensors.emplace_back(pointer(contest_.address(set, i)));
      }
      for (const Scalar& scalar : scalars) tensors.emplace_back(scalar.checked_value);
      return kernel.launch(stream, tensors.data(), tensors.size(), pointer(workspace->address()));
    };
    KW_TRY(contest_.check(entered));
    return {};
  }
  /// Enters the right ones of cuBLASLt's algorithms.
  Result<void> enter(const std::shared_ptr<const CublasLtMatmul>& peer) {
    for (int i = 0; i < peer->algorithms(); ++i) {
      Competitor& entered = all_.emplace_back();
      entered.name = concat("cublaslt_", i);
      entered.launch = [this, peer, i](CUstream stream, int set) {
        return peer->launch(stream, i, contest_.address(set, 0), contest_.address(set, 1),
                            contest_.address(set, 2), workspace_->address());
      };
      if (!contest_.check(entered)) all_.pop_back();
    }
    return {};
  }

  /// Samples all, and then anew those that are near the best, and the first two.
  Result<void> measure(double expected_us) {
    std::vector<Competitor*> competitors;
    for (Competitor& one : all_) {
      KW_TRY(contest_.prepare(one, expected_us));
      competitors.push_back(&one);
    }
    KW_TRY(contest_.sample(competitors, kSelectionRounds));
    double best = competitors.front()->median_us();
    for (const Competitor* one : competitors) best = std::min(best, one->median_us());
    std::vector<Competitor*> kept;
    for (std::size_t i = 0; i < competitors.size(); ++i) {
      const bool named =
          !competitors[i]->name.starts_with("cublaslt_") || competitors[i]->name == "cublaslt_0";
      if (named || competitors[i]->median_us() < 1.05 * best) kept.push_back(competitors[i]);
    }
    return contest_.sample(kept, kRounds);
  }

  const std::deque<Competitor>& all() const { return all_; }

 private:
  BenchDevice& device_;
  const Contest& contest_;
  std::shared_ptr<DeviceBuffer> workspace_;
  std::deque<Competitor> all_;
};

/// Returns true if the problem is a product that cuBLASLt is asked for.
bool is_plain_product(const Problem& problem) {
  return problem.operation() == "matmul" && problem.dims().size() == 3 &&
         problem.flags().size() == 1 && problem.flags()[0].second != "fp8_e4m3";
}

class RegretBench {
 public:
  RegretBench(ServiceCore& families, ServiceCore& alone, BenchDevice& device, BenchJson& json)
      : families_(families), alone_(alone), device_(device), json_(json) {}

  /// `alone_seconds` is 0 if sizes are not tuned alone.
  Result<void> run(const BoundProblem& problem, const std::string& family, double alone_seconds) {
    KW_ASSIGN(const Kernel kernel, families_.get_best_kernel(problem.problem()));
    families_.wait_for_shortlists();
    KW_ASSIGN(const Contest contest, Contest::make(families_, device_, problem));
    KW_ASSIGN(std::shared_ptr<DeviceBuffer> workspace, device_.device->allocate(kWorkspaceBytes));
    Field field(device_, contest, std::move(workspace));
    Json row{{"problem", problem.text()}, {"family", family}};
    KW_ASSIGN(const std::vector<Scalar> scalars, problem.scalars());
    KW_TRY(field.enter("family", kernel, scalars));
    double expected_us = 100;
    if (alone_seconds > 0) {
      KW_ASSIGN(const ServiceCore::Tuned tuned,
                alone_.tune(problem.problem(), {.budget = {.seconds = alone_seconds}}));
      expected_us = tuned.record.winner.measurement.median_us();
      row["alone"] = tuned.record.winner.choice.id();
      row["alone_tuned_us"] = expected_us;
      KW_TRY(field.enter("alone", tuned.kernel, scalars));
    }
    if (is_plain_product(problem.problem())) {
      if (!cublaslt_) {
        KW_ASSIGN(cublaslt_, CublasLt::open());
      }
      const DType dtype = problem.dtype("dtype");
      KW_ASSIGN(auto peer,
                CublasLtMatmul::make(cublaslt_, size_of(problem), {dtype, dtype}, kWorkspaceBytes));
      KW_TRY(field.enter(std::shared_ptr(std::move(peer))));
    }
    KW_TRY(field.measure(expected_us));
    return report(std::move(row), problem, kernel, field);
  }

  /// Prints how the regrets of a family are spread, and begins the next one.
  void end(std::string_view family) {
    std::ranges::sort(regrets_);
    if (regrets_.empty()) return;
    const auto at = [this](double share) {
      return 100 * regrets_[static_cast<std::size_t>(
                       std::lround(share * static_cast<double>(regrets_.size() - 1)))];
    };
    double log = 0;
    for (const double ratio : ratios_) log += std::log(ratio);
    std::printf("%zu sizes: regret median %.1f %%, p95 %.1f %%, worst %.1f %%", regrets_.size(),
                at(0.5), at(0.95), at(1));
    if (!ratios_.empty()) {
      std::printf("; cuBLASLt's first choice over ours: mean %.3f, lowest %.3f",
                  std::exp(log / static_cast<double>(ratios_.size())),
                  *std::ranges::min_element(ratios_));
    }
    std::printf("  %.*s\n", static_cast<int>(family.size()), family.data());
    regrets_.clear();
    ratios_.clear();
  }

 private:
  static MatmulSize size_of(const BoundProblem& problem) {
    const Scope& scope = problem.scope();
    return {*scope.find("m"), *scope.find("n"), *scope.find("k")};
  }

  Result<void> report(Json row, const BoundProblem& problem, const Kernel& kernel,
                      const Field& field) {
    const Competitor& ours = field.all().front();
    const Competitor* best = &ours;
    row["match"] = to_string(kernel.match());
    row["kernel"] = concat(kernel.summary().kernel_template, ' ', kernel.summary().configuration);
    row["ours_us"] = ours.median_us();
    for (const Competitor& one : field.all()) {
      if (one.samples_us.empty()) continue;
      if (one.median_us() < best->median_us()) best = &one;
      if (one.name == "alone") row["alone_us"] = one.median_us();
      if (one.name == "cublaslt_0") {
        row["peer_us"] = one.median_us();
        ratios_.push_back(one.median_us() / ours.median_us());
      }
    }
    row["best"] = best->name;
    row["best_us"] = best->median_us();
    regrets_.push_back(ours.median_us() / best->median_us() - 1);
    row["regret"] = regrets_.back();
    std::printf("%8.2f us, best %8.2f (%s), regret %5.1f %%, %s  %s\n", ours.median_us(),
                best->median_us(), best->name.c_str(), 100 * regrets_.back(),
                std::string(to_string(kernel.match())).c_str(), problem.text().c_str());
    return json_.add(std::move(row));
  }

  ServiceCore& families_;
  ServiceCore& alone_;
  BenchDevice& device_;
  BenchJson& json_;
  std::shared_ptr<const CublasLt> cublaslt_;
  std::vector<double> regrets_;
  std::vector<double> ratios_;
};

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::string cache = text_option(argc, argv, "--cache");
  const auto open = [](std::string folder) {
    return take(ServiceCore::open({.cache = std::move(folder)}));
  };
  const auto families = open(cache);
  const auto alone = open(cache + "/alone");
  BenchDevice device = take(BenchDevice::open(families->builder().pool()));
  const ContextScope scope(device.context->api(), device.context->context());
  if (const auto current = device.context->check(scope.status()); !current) fail(current.error());
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "family_regret", command_line(argc, argv),
                                        {{"name", families->profile().name},
                                         {"uuid", families->identity().uuid},
                                         {"driver", families->identity().driver_version}}));
  const auto sizes = integer_option(argc, argv, "--sizes", 8);
  const double alone_seconds = number_option(argc, argv, "--alone", 0);
  FamilyOptions tuning;
  tuning.seconds = number_option(argc, argv, "--seconds", tuning.seconds);
  const bool predicted =
      std::find(argv, argv + argc, std::string_view("--predicted")) != argv + argc;
  std::mt19937_64 random(static_cast<std::uint64_t>(integer_option(argc, argv, "--seed", 1)));
  RegretBench bench(*families, *alone, device, json);
  int failed = 0;
  const std::string list = text_option(argc, argv, "--families");
  for (const std::string_view text : split(list, ';')) {
    const Problem written = take(Problem::parse(text));
    const RangedProblem family = take(families->site().bind_family(written));
    const RecordKey key = families->site().key(family.text());
    const auto known = families->cache().families(key);
    if (!predicted && std::ranges::none_of(known, [&](const TieredCache::FoundFamily& one) {
          return one.head.key == key;
        })) {
      const TunedFamily tuned = take(families->tune_family(written, tuning));
      std::printf("%zu kernels, %zu and %zu sizes, within %.1f %% of the best found, %.1f s  %s\n",
                  tuned.record.head.kernels.size(), tuned.record.matrix.size(),
                  tuned.record.validation.size(), 100 * tuned.record.head.regret.p95,
                  tuned.record.wall_seconds, family.text().c_str());
    }
    for (std::int64_t i = 0; i < sizes; ++i) {
      std::vector<std::int64_t> at;
      for (const FreeDim& dim : family.free()) {
        at.push_back(size_at(dim, std::uniform_real_distribution<double>(0, 1)(random)));
      }
      const Result<BoundProblem> problem = family.at(at);
      if (!problem) continue;
      if (const auto done = bench.run(*problem, family.text(), alone_seconds); !done) {
        ++failed;
        std::printf("%s: %s\n", problem->text().c_str(), done.error().message.c_str());
      }
      std::fflush(stdout);
    }
    bench.end(family.text());
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
