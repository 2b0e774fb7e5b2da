// Measures how long a size takes that nobody asked for before, in families whose kernels are made:
// until there is a kernel, until its plan is made, and when it is asked for again; and how much the
// process grows. New sizes of Python calls are measured by vendor/new_sizes.py.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/percentile.h"
#include "service/serve/core.h"
#include "support/names.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "tuner/candidates/family_fit.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: new_sizes --cache DIR [--sku ID] [--sizes N] [--seed S] [--grow N] [--families LIST]\n"
    "                 [--json FILE]\n"
    "       LIST has problems with ranges, 'matmul m=1..8192 n=4096 k=4096 dtype=bf16;...'\n";
constexpr const char* kFamilies =
    "matmul m=129..8192 n=6144 k=4096 dtype=bf16;"
    "matmul m=129..8192 n=5120 k=1536 dtype=fp16;"
    "matmul m=17..32 n=4608 k=3584 dtype=bf16;"
    "rmsnorm rows=1..60000 columns=5120 dtype=bf16;"
    "softmax rows=1..60000 columns=3000 dtype=fp32;"
    "attention batch=17..60 heads=24 kv_heads=8 q_len=1 kv_len=513..4096 head_dim=128 dtype=bf16;"
    "attention batch=17..60 heads=32 kv_heads=8 q_len=1 kv_len=513..4096 kv_total=4100..8000 "
    "pages=30000 head_dim=128 lengths=kv cache=paged dtype=bf16;"
    "attention batch=1 heads=16 kv_heads=2 q_len=129..2048 kv_len=4097..30000 head_dim=128 "
    "dtype=bf16";

double resident_mb() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Draws sizes evenly by their logarithms.
Problem draw(const RangedProblem& family, std::mt19937_64& random) {
  Problem::Dims dims = family.last().problem().dims();
  for (auto& [name, size] : dims) {
    if (const FreeDim* range = find_named(family.free(), name)) {
      size = size_at(*range, std::uniform_real_distribution<double>(0, 1)(random));
    }
  }
  return Problem::make(family.last().problem().operation(), std::move(dims),
                       family.last().problem().flags());
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const auto core =
      take(ServiceCore::open({.cache = text_option(argc, argv, "--cache"),
                              .sku = option_value(argc, argv, "--sku").value_or("")}));
  const auto sizes = integer_option(argc, argv, "--sizes", 1000);
  const auto grow = integer_option(argc, argv, "--grow", 0);
  std::mt19937_64 random(static_cast<std::uint64_t>(integer_option(argc, argv, "--seed", 1)));
  BenchJson json = take(BenchJson::open(
      option_value(argc, argv, "--json").value_or(""), "new_sizes", command_line(argc, argv),
      core->has_device() ? Json{{"name", core->profile().name},
                                {"uuid", core->identity().uuid},
                                {"driver", core->identity().driver_version}}
                         : cpu_device()));
  const std::string families = option_value(argc, argv, "--families").value_or(kFamilies);
  std::vector<RangedProblem> all;
  for (const std::string_view text : split(families, ';')) {
    const Problem written = take(Problem::parse(text));
    all.push_back(take(core->site().bind_family(written)));
    if (const auto loaded = core->prewarm_family(written); !loaded) fail(loaded.error());
  }
  core->seal(SealMode::error);
  std::printf("%9s %9s %9s | %9s %9s | %9s  us\n", "new p50", "p99", "max", "plan p50", "p99",
              "again");
  std::size_t number = 0;
  int failed = 0;
  for (const std::string_view text : split(families, ';')) {
    const RangedProblem& family = all[number++];
    std::vector<double> found_us;
    std::vector<double> planned_us;
    std::vector<double> again_us;
    for (std::int64_t i = 0; i < sizes; ++i) {
      const Problem problem = draw(family, random);
      const double start = steady_seconds();
      const Result<Kernel> kernel = core->get_best_kernel(problem);
      found_us.push_back(1e6 * (steady_seconds() - start));
      if (kernel) continue;
      if (failed++ == 0) std::printf("%s\n", kernel.error().message.c_str());
    }
    for (std::int64_t i = 0; i < sizes; ++i) {
      const Problem problem = draw(family, random);
      const Result<Kernel> kernel = core->get_best_kernel(problem);
      if (!kernel) continue;
      const double found = steady_seconds();
      static_cast<void>(kernel->workspace_bytes());
      const double planned = steady_seconds();
      const Result<Kernel> again = core->get_best_kernel(problem);
      again_us.push_back(1e6 * (steady_seconds() - planned));
      planned_us.push_back(1e6 * (planned - found));
    }
    if (planned_us.empty()) continue;
    Json row{
        {"problem", text},
        {"sizes", sizes},
        {"new_us",
         {{"p50", percentile(found_us, 0.5)},
          {"p90", percentile(found_us, 0.9)},
          {"p99", percentile(found_us, 0.99)},
          {"max", percentile(found_us, 1)}}},
        {"plan_us", {{"p50", percentile(planned_us, 0.5)}, {"p99", percentile(planned_us, 0.99)}}},
        {"again_us", {{"p50", percentile(again_us, 0.5)}, {"p99", percentile(again_us, 0.99)}}}};
    std::printf("%9.2f %9.2f %9.2f | %9.2f %9.2f | %9.2f  %.*s\n", percentile(found_us, 0.5),
                percentile(found_us, 0.99), percentile(found_us, 1), percentile(planned_us, 0.5),
                percentile(planned_us, 0.99), percentile(again_us, 0.5),
                static_cast<int>(text.size()), text.data());
    if (const auto added = json.add(std::move(row)); !added) fail(added.error());
  }
  if (grow > 0) {
    Json row{{"problem", "memory"}};
    for (std::int64_t i = 1; i <= grow; ++i) {
      const Result<Kernel> kernel =
          core->get_best_kernel(draw(all[static_cast<std::size_t>(i) % all.size()], random));
      if (kernel) static_cast<void>(kernel->workspace_bytes());
      if (i == 1000) row["mb_after_1000"] = resident_mb();
      if (i == 10'000) row["mb_after_10000"] = resident_mb();
    }
    row["lookups"] = grow;
    row["mb_at_the_end"] = resident_mb();
    std::printf("%s\n", row.dump().c_str());
    if (const auto added = json.add(std::move(row)); !added) fail(added.error());
  }
  const Metrics metrics = core->metrics();
  std::printf("%d refused, %llu requests for a compile after the seal, %llu kernels loaded\n",
              failed, static_cast<unsigned long long>(metrics.compiles_after_ready),
              static_cast<unsigned long long>(metrics.loaded_kernels));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
