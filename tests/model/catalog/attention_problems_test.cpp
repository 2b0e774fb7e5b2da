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
  static std::vector<BoundProblem> bound(const std::vector<std::string>& texts) {
    std::vector<BoundProblem> all;
    for (const std::string& text : texts) {
      const auto problem = catalog().bind(Problem::parse(text).value());
      EXPECT_TRUE(problem) << text << ": " << problem.error().message;
      if (problem) all.push_back(*problem);
    }
    return all;
  }

  /// Expects that the texts are few and different, and that all pairs of values of these names and
  /// of the flags are there. For each name the number of its values is passed.
  static void expect_all_pairs(const std::vector<std::string>& texts, std::size_t most,
                               const std::map<std::string, std::size_t>& named) {
    const Operation& attention = *catalog().operation("attention").value();
    const std::vector<BoundProblem> all = bound(texts);
    EXPECT_LE(all.size(), most);
    std::set<std::string> different;
    for (const BoundProblem& problem : all) different.insert(problem.text());
    EXPECT_EQ(different.size(), all.size()) << "some are given twice";
    std::map<std::string, std::size_t> values;
    for (const Flag& flag : attention.flags) {
      if (flag.name == "append" || flag.name == "pairs") continue;  // problems of their own
      values[flag.name] = flag.values.size();
    }
    for (const auto& [name, count] : named) values[name] = count;
    for (auto a = values.begin(); a != values.end(); ++a) {
      for (auto b = values.begin(); b != a; ++b) {
        std::set<std::pair<std::int64_t, std::int64_t>> met;
        for (const BoundProblem& problem : all) {
          const Scope& scope = problem.scope();
          met.emplace(*scope.find(a->first), *scope.find(b->first));
        }
        // A work list is for unequal lengths, and not for bits that must not depend on others.
        const bool has_schedule =
            values["schedule"] > 1 && (a->first == "schedule" || b->first == "schedule");
        // Only a paged cache has a table, of rows or as a list.
        const auto is_of_table = [](const std::string& name) {
          return name == "cache" || name == "table" || name == "table_rows";
        };
        const bool one_excluded =
            (has_schedule && (b->first == "lengths" || b->first == "invariant")) ||
            (is_of_table(a->first) && is_of_table(b->first));
        EXPECT_EQ(met.size(), a->second * b->second - (one_excluded ? 1 : 0))
            << a->first << " and " << b->first;
      }
    }
  }
};

TEST_F(AttentionProblemsTest, AreFewOfAllPairs) {
  const auto texts = attention_problems();
  EXPECT_GE(texts.size(), 350U);
  expect_all_pairs(texts, 450,
                   {{"head_dim", 25}, {"dtype", 2}, {"descale", 1}, {"mask", 3}, {"bias", 2}});
}

TEST_F(AttentionProblemsTest, OfFp8AreFewOfAllPairs) {
  expect_all_pairs(attention_fp8_problems(), 90,
                   {{"head_dim", 7}, {"dtype", 3}, {"mask", 3}, {"bias", 2}});
}

TEST_F(AttentionProblemsTest, OfMasksAndBiasesAreFewOfAllPairs) {
  expect_all_pairs(attention_bias_problems(), 80,
                   {{"head_dim", 6},
                    {"dtype", 3},
                    {"q_len", 7},
                    {"kv_len", 7},
                    {"lengths", 2},
                    {"descale", 1},
                    {"invariant", 1},
                    {"schedule", 1}});
}

TEST_F(AttentionProblemsTest, EachWithANewTokenHasAKernelOnHopper) {
  const std::vector<BoundProblem> all = bound(attention_append_problems());
  EXPECT_LE(all.size(), 70U);
  const KernelTemplate& stream = **catalog().kernel_template("attention/stream");
  for (const BoundProblem& problem : all) {
    EXPECT_FALSE(valid_candidates(stream, problem, *find_profile("h200"), 1).empty())
        << problem.text();
    for (const KernelTemplate* made : catalog().templates_of("attention")) {
      EXPECT_EQ(applies(*made, problem, *find_profile("h200")).has_value(), made == &stream)
          << made->name;
    }
  }
}

TEST_F(AttentionProblemsTest, EachHasAKernelOnEveryArchitecture) {
  const std::vector<BoundProblem> all = bound(all_attention_problems());
  std::map<std::string, int> applied;
  for (const char* device : {"a100_80", "h200"}) {
    const DeviceProfile profile = *find_profile(device);
    for (const BoundProblem& problem : all) {
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
    EXPECT_GT(applied[made->name], 5) << made->name;
  }
}

}  // namespace
}  // namespace kernwright
