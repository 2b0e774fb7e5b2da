#include "bench/common/simulated_server.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace kernwright {
namespace {

std::vector<ServerStep> steps_of(std::uint64_t seed, int count) {
  SimulatedServer server(seed);
  std::vector<ServerStep> steps;
  for (int i = 0; i < count; ++i) steps.push_back(server.next());
  return steps;
}

TEST(SimulatedServerTest, StepsAreWithinTheLimitsAndReachThem) {
  std::int64_t most_tokens = 0;
  std::int64_t least_tokens = SimulatedServer::kMostTokens;
  std::int64_t longest = 0;
  std::set<std::int64_t> batches;
  for (const ServerStep& step : steps_of(3, 20'000)) {
    EXPECT_GT(step.tokens(), 0);
    EXPECT_LE(step.tokens(), SimulatedServer::kMostTokens);
    EXPECT_LE(step.decoding, static_cast<std::int64_t>(SimulatedServer::kMostRequests));
    EXPECT_EQ(step.decoding == 0, step.longest == 0);
    EXPECT_EQ(step.prompt == 0, step.context == 0);
    EXPECT_LE(step.prompt, step.context);
    EXPECT_LE(step.context, SimulatedServer::kLongestPrompt);
    most_tokens = std::max(most_tokens, step.tokens());
    least_tokens = std::min(least_tokens, step.tokens());
    longest = std::max(longest, step.longest);
    batches.insert(step.decoding);
  }
  EXPECT_EQ(most_tokens, SimulatedServer::kMostTokens);
  EXPECT_EQ(least_tokens, 1);
  EXPECT_GT(longest, SimulatedServer::kLongestPrompt);
  EXPECT_LE(longest, SimulatedServer::kLongestPrompt + SimulatedServer::kLongestAnswer);
  for (std::int64_t batch = 0; batch <= 64; ++batch) EXPECT_TRUE(batches.contains(batch)) << batch;
}

TEST(SimulatedServerTest, APromptGoesOnWhereItsLastChunkEnded) {
  int chunked = 0;
  std::int64_t context = 0;
  for (const ServerStep& step : steps_of(1, 2'000)) {
    if (step.prompt == 0) continue;
    const bool begins = step.prompt == step.context;
    EXPECT_TRUE(begins || step.context - step.prompt == context);
    chunked += begins ? 0 : 1;
    context = step.context;
  }
  EXPECT_GT(chunked, 50);
}

TEST(SimulatedServerTest, ContextsGrowByOneTokenAStep) {
  std::int64_t grew = 0;
  ServerStep last;
  for (const ServerStep& step : steps_of(2, 2'000)) {
    if (step.decoding == last.decoding && last.decoding > 0 && step.longest > last.longest) {
      EXPECT_TRUE(step.longest == last.longest + 1 || last.prompt > 0);
      ++grew;
    }
    last = step;
  }
  EXPECT_GT(grew, 300);
}

TEST(SimulatedServerTest, ASeedGivesTheSameSteps) {
  const auto tokens = [](std::uint64_t seed) {
    std::vector<std::int64_t> all;
    for (const ServerStep& step : steps_of(seed, 100)) all.push_back(step.tokens());
    return all;
  };
  EXPECT_EQ(tokens(5), tokens(5));
  EXPECT_NE(tokens(5), tokens(6));
}

}  // namespace
}  // namespace kernwright
