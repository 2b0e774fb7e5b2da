#include "tests/model/attention_problems.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

TEST(PairwiseRowsTest, EveryTwoValuesMeet) {
  const std::vector<int> sizes{5, 4, 3, 3, 2, 2};
  const auto rows = pairwise_rows(sizes);
  EXPECT_LE(rows.size(), 24U);
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      std::set<std::pair<int, int>> met;
      for (const auto& row : rows) met.emplace(row[a], row[b]);
      EXPECT_EQ(met.size(), static_cast<std::size_t>(sizes[a] * sizes[b])) << a << " " << b;
    }
  }
}

class AttentionProblemsTest : public ::testing::Test {
 protected:
  static std::vector<BoundProblem> problems() {
    std::vector<BoundProblem> all;
    for (const std::string& text : attention_problems()) {
      const auto problem = catalog().bind(Problem::parse(text).value());
      EXPECT_TRUE(problem) << text << ": " << problem.error().message;
      if (problem) all.push_back(*problem);
    }
    return all;
  }
};

TEST_F(AttentionProblemsTest, AreFewOfAllPairs) {
  const Operation& attention = *catalog().operation("attention").value();
  const std::vector<BoundProblem> all = problems();
  EXPECT_GE(all.size(), 350U);
  EXPECT_LE(all.size(), 450U);
  std::set<std::string> texts;
  for (const BoundProblem& problem : all) texts.insert(problem.text());
  EXPECT_EQ(texts.size(), all.size()) << "some are given twice";
  std::set<std::vector<std::int64_t>> met;
  std::vector<std::string> names{"head_dim", "dtype"};
  for (const Flag& flag : attention.flags) {
    if (flag.name != "descale") names.push_back(flag.name);
  }
  for (const BoundProblem& problem : all) {
    const Scope& scope = problem.scope();
    for (std::size_t a = 0; a < names.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        met.insert({static_cast<std::int64_t>(a), static_cast<std::int64_t>(b),
                    *scope.find(names[a]), *scope.find(names[b])});
      }
    }
  }
  // Values of each: 25 head dims, two dtypes, and those of the flags.
  std::vector<std::size_t> values{25, 2};
  for (const Flag& flag : attention.flags) {
    if (flag.name != "descale") values.push_back(flag.values.size());
  }
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < values.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) pairs += values[a] * values[b];
  }
  // A work list is for unequal lengths, and not where bits must not depend on others.
  EXPECT_EQ(met.size(), pairs - 2);
}

TEST_F(AttentionProblemsTest, EachHasAKernelOnEveryArchitecture) {
  std::map<std::string, int> applied;
  for (const char* device : {"a100_80", "h200"}) {
    const DeviceProfile profile = *find_profile(device);
    for (const BoundProblem& problem : problems()) {
      int kernels = 0;
      for (const KernelTemplate* made : catalog().templates_of("attention")) {
        if (!applies(*made, problem, profile)) continue;
        const bool found = !valid_candidates(*made, problem, profile, 1).empty();
        kernels += found ? 1 : 0;
        applied[made->name] += found ? 1 : 0;
      }
      EXPECT_GT(kernels, 0) << problem.text() << " on " << device;
    }
  }
  for (const KernelTemplate* made : catalog().templates_of("attention")) {
    EXPECT_GT(applied[made->name], 10) << made->name;
  }
}

}  // namespace
}  // namespace kernwright
