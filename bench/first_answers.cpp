// Measures how good the first answer is: for problems without a record, the seconds until there is
// a kernel, which is the cost model's first choice, and its time beside the winners of a few
// budgets. Every budget begins with an empty cache. The kernels of a problem are measured in turn,
// with a cold L2 and random data.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/contest.h"
#include "bench/common/random_shapes.h"
#include "service/serve/core.h"
#include "service/sweep/worklist.h"
#include "support/files.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: first_answers --cache DIR [--random N --seed S | --worklist FILE] [--seconds 4,30]\n"
    "                     [--stop-after SECONDS] [--json FILE]\n"
    "       DIR is empty or is not there yet\n";
constexpr int kRounds = 15;

std::vector<Problem> chosen_problems(int argc, const char* const* argv) {
  std::vector<Problem> problems;
  if (const auto worklist = option_value(argc, argv, "--worklist")) {
    for (const WorklistEntry& entry : take(parse_worklist(take(read_file(*worklist)), *worklist))) {
      problems.push_back(entry.problem);
    }
    return problems;
  }
  const auto count = static_cast<int>(integer_option(argc, argv, "--random", 16));
  const auto seed = static_cast<std::uint64_t>(integer_option(argc, argv, "--seed", 1));
  for (const MatmulSize& size : random_shapes(count, seed, 8)) {
    problems.push_back(matmul(size, DType::bf16));
  }
  return problems;
}

/// A kernel that a service of its own answered with, and when.
struct Answer {
  std::shared_ptr<ServiceCore> core;
  Kernel kernel;
  double seconds = 0;   ///< until there was a kernel
  int measured = 0;     ///< candidates
  double estimate = 0;  ///< of what was not tried
};

/// `budget` 0: the first answer.
Result<Answer> answer(const Problem& problem, const std::filesystem::path& cache, double budget) {
  KW_ASSIGN(auto core, ServiceCore::open({.cache = cache.string()}));
  const double start = steady_seconds();
  int measured = 0;
  double estimate = 0;
  if (budget > 0) {
    KW_ASSIGN(const auto tuned, core->tune(problem, {.budget = {.seconds = budget}}));
    measured = tuned.record.measured;
    estimate = tuned.record.search.regret_estimate;
  }
  KW_ASSIGN(auto kernel, core->get_best_kernel(problem));
  return Answer{std::move(core), std::move(kernel), steady_seconds() - start, measured, estimate};
}

class Bench {
 public:
  Bench(std::filesystem::path cache, std::vector<double> budgets, BenchDevice& device,
        ServiceCore& core, BenchJson& json)
      : cache_(std::move(cache)),
        budgets_(std::move(budgets)),
        device_(device),
        core_(core),
        json_(json) {}

  /// Answers and measures one problem, keeps and prints its row.
  Result<void> run(const Problem& problem);
  /// Prints how many times as long as each budget's winner the first answers take.
  void report_spread() const;

 private:
  const std::filesystem::path cache_;
  const std::vector<double> budgets_;  ///< seconds; 0 first
  BenchDevice& device_;
  ServiceCore& core_;  ///< whose compiler the references are made with
  BenchJson& json_;
  int problems_ = 0;
  std::vector<double> first_seconds_;
  std::vector<std::vector<double>> slower_;  ///< by budget: the time over the last budget's
};

Result<void> Bench::run(const Problem& problem) {
  const int index = problems_++;
  std::deque<Answer> answers;
  for (const double budget : budgets_) {
    KW_ASSIGN(auto one, answer(problem, cache_ / concat(index, "_", budget), budget));
    answers.push_back(std::move(one));
  }
  KW_ASSIGN(const auto bound, core_.bind(problem));
  KW_ASSIGN(const auto contest, Contest::make(core_, device_, bound));
  std::int64_t bytes = 1;
  for (const Answer& one : answers) bytes = std::max(bytes, one.kernel.workspace_bytes());
  KW_ASSIGN(const auto workspace, device_.device->allocate(bytes));
  const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
  std::deque<Competitor> field;
  std::vector<Competitor*> all;
  for (const Answer& one : answers) {
    Competitor& entered = field.emplace_back();
    entered.name =
        concat(one.kernel.summary().kernel_template, " ", one.kernel.summary().configuration);
    entered.launch = [&](CUstream stream, int set) {
      std::vector<Arg> tensors;
      for (std::size_t i = 0; i < contest.sets().shapes().size(); ++i) {
        tensors.emplace_back(pointer(contest.address(set, i)));
      }
      return one.kernel.launch(stream, tensors.data(), tensors.size(),
                               pointer(workspace->address()));
    };
    all.push_back(&entered);
    const KernelSummary& summary = one.kernel.summary();
    const double expected_us = std::max(summary.measured_us, summary.predicted_us);
    KW_TRY(contest.check(entered));
    KW_TRY(contest.prepare(entered, expected_us));
  }
  KW_TRY(contest.sample(all, kRounds));
  Json row{{"problem", problem.text()}, {"answers", Json::array()}};
  const double last_us = field.back().median_us();
  std::printf("%-44s %6.3f s", problem.text().c_str(), answers.front().seconds);
  slower_.resize(answers.size());
  first_seconds_.push_back(answers.front().seconds);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const double us = field[i].median_us();
    row["answers"].push_back({{"budget_seconds", budgets_[i]},
                              {"seconds", answers[i].seconds},
                              {"us", us},
                              {"mad_us", field[i].mad_us()},
                              {"measured", answers[i].measured},
                              {"estimate", answers[i].estimate},
                              {"choice", field[i].name}});
    slower_[i].push_back(us / last_us - 1);
    std::printf("  %9.2f us %+5.1f %%", us, 100 * slower_[i].back());
  }
  std::printf("  %s | %s\n", field.front().name.c_str(), field.back().name.c_str());
  std::fflush(stdout);
  return json_.add(std::move(row));
}

void Bench::report_spread() const {
  const auto quantile = [](std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  if (first_seconds_.empty()) return;
  std::printf("the first answers: after %.3f s (median), %.3f s (p95)\n",
              quantile(first_seconds_, 0.5), quantile(first_seconds_, 0.95));
  for (std::size_t i = 0; i + 1 < slower_.size(); ++i) {
    std::printf("%g s: slower than after %g s by %.1f %% (median), %.1f %% (p90), %.1f %% (p95)\n",
                budgets_[i], budgets_.back(), 100 * quantile(slower_[i], 0.5),
                100 * quantile(slower_[i], 0.9), 100 * quantile(slower_[i], 0.95));
  }
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const double start = steady_seconds();
  const std::filesystem::path cache = text_option(argc, argv, "--cache");
  std::vector<double> budgets = {0};
  for (const std::string_view one :
       split(option_value(argc, argv, "--seconds").value_or("4"), ',')) {
    budgets.push_back(std::stod(std::string(one)));
  }
  const double stop_after = number_option(argc, argv, "--stop-after", 1e9);
  const auto core = take(ServiceCore::open({.cache = (cache / "bench").string()}));
  auto device = take(BenchDevice::open(core->builder().pool()));
  const ContextScope scope(device.context->api(), device.context->context());
  if (const auto current = device.context->check(scope.status()); !current) fail(current.error());
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "first_answers", command_line(argc, argv),
                                        {{"name", core->profile().name},
                                         {"uuid", core->identity().uuid},
                                         {"driver", core->identity().driver_version}}));
  Bench bench(cache, budgets, device, *core, json);
  int status = 0;
  for (const Problem& problem : chosen_problems(argc, argv)) {
    if (steady_seconds() - start > stop_after) break;
    if (const auto done = bench.run(problem); !done) {
      std::fprintf(stderr, "%s: %s\n", problem.text().c_str(), done.error().message.c_str());
      status = 1;
      if (device.context->lost() || device.device->lost()) break;
    }
  }
  bench.report_spread();
  return status;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
