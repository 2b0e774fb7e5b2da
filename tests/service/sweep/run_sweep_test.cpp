#include "service/sweep/run_sweep.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

namespace kernwright {
namespace {

TEST(RunSweepTest, TunersShareTheProblemsAndTheResultsKeepTheirOrder) {
  std::vector<Problem> problems;
  for (std::int64_t n = 1; n <= 50; ++n) problems.push_back(vector_add(n, DType::bf16));
  const SweepTuner tuner = [&](const Problem& problem, std::span<const Problem> later) {
    EXPECT_EQ(later.size(), 50U - static_cast<std::size_t>(problem.dims()[0].second));
    return SweepResult{.error = problem.text()};
  };
  std::vector<int> told(50);
  const auto tell = [&](std::size_t index, const SweepResult&, double) { ++told[index]; };
  const std::vector<SweepResult> results =
      run_sweep(problems, std::vector(3, tuner), tell, [](std::string_view) {});
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(results[i].error, problems[i].text());
  EXPECT_EQ(told, std::vector(50, 1));
}

}  // namespace
}  // namespace kernwright
