// Measures how the kernels of a decode step may follow each other: as single launches, as a graph,
// as a graph with programmatic edges, and as one cooperative kernel whose blocks meet at a barrier,
// wait for flags, or wait for data that carries its own flag. Every step depends on the one before,
// and every sample is checked against the host.

#include <cstdio>
#include <memory>
#include <string>

#include "bench/boundaries/experiments.h"
#include "bench/boundaries/lab.h"
#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "compile/compile_pool.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: boundaries [--rounds N] [--only EXPERIMENT] [--delays SEED] [--json FILE]\n";
constexpr int kRounds = 21;

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const auto rounds = static_cast<int>(integer_option(argc, argv, "--rounds", kRounds));
  const auto chosen =
      take(boundaries::choose_experiments(option_value(argc, argv, "--only").value_or("")));
  // With delays the times mean nothing, and what is shown is that the results stay right.
  const bool delayed = option_value(argc, argv, "--delays").has_value();
  const auto delay_seed =
      delayed ? static_cast<std::uint32_t>(integer_option(argc, argv, "--delays", 1)) : 0U;
  CompilePool pool(make_toolkit_compiler(), CompilePoolOptions{});
  const auto lab = take(boundaries::Lab::open(pool, delay_seed));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "boundaries", command_line(argc, argv),
                                        {{"name", lab->profile().name},
                                         {"uuid", lab->identity().uuid},
                                         {"driver", lab->identity().driver_version},
                                         {"sm_count", lab->profile().sm_count}}));
  std::printf("%s, %u blocks\n", lab->profile().name.c_str(), lab->blocks());
  for (const boundaries::Experiment& experiment : chosen) {
    std::printf("\n%s: %s\n", std::string(experiment.name).c_str(),
                std::string(experiment.question).c_str());
    if (auto done = experiment.run(*lab, rounds, json); !done) return report(done.error());
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
