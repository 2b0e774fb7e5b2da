#include "model/candidate/rule_tree.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/candidate/candidate_maker.h"
#include "model/catalog/catalog.h"
#include "tests/model/samples.h"

namespace kernwright {
namespace {

/// Returns whether `make` refuses the configuration by a rule or a derived value.
bool refused_by_rule(const CandidateMaker& maker, const Configuration& configuration) {
  const Result<Candidate> made = maker.make(configuration);
  if (made) return false;
  const std::string& why = made.error().message;
  return why.find(": rule \"") != std::string::npos || why.find(": derived") != std::string::npos;
}

/// Operations' examples, and products whose flags and odd sizes rule out other configurations.
std::vector<BoundProblem> problems_of(const Operation& operation) {
  std::vector<BoundProblem> problems{BoundProblem::bind(operation, operation.example).value()};
  if (operation.name != "matmul") return problems;
  for (const char* text :
       {"matmul m=16 n=4096 k=4096 dtype=bf16", "matmul m=3 n=257 k=129 dtype=fp16",
        "matmul m=2048 n=14336 k=4096 dtype=bf16 bias=column activation=gelu_tanh"}) {
    problems.push_back(BoundProblem::bind(operation, Problem::parse(text).value()).value());
  }
  return problems;
}

TEST(RuleTreeTest, FindsTheSamePointsInTheSameOrderAsLookingAtEach) {
  const auto catalog = Catalog::load({});
  ASSERT_TRUE(catalog) << catalog.error().message;
  const DeviceProfile profile = h200();
  int compared = 0;
  int obeyed = 0;
  for (const KernelTemplate& kernel_template : (*catalog)->templates()) {
    const Operation& operation = **(*catalog)->operation(kernel_template.operation);
    for (const BoundProblem& problem : problems_of(operation)) {
      SCOPED_TRACE(kernel_template.name + " for " + problem.text());
      if (!applies(kernel_template, problem, profile)) continue;
      const CandidateMaker maker(kernel_template, problem, profile);
      const std::int64_t size = kernel_template.space.size();
      std::vector<std::int64_t> points;
      const std::size_t habits = kernel_template.habits.size();
      maker.add_obeying(0, size, points, habits);
      EXPECT_TRUE(std::is_sorted(points.begin(), points.end()));
      EXPECT_TRUE(std::adjacent_find(points.begin(), points.end()) == points.end());

      std::vector<std::int64_t> in_pieces;
      for (std::int64_t piece = 0; piece < 7; ++piece) {
        maker.add_obeying(size * piece / 7, size * (piece + 1) / 7, in_pieces, habits);
      }
      EXPECT_EQ(in_pieces, points);

      // All of small spaces; of large ones some, and some of those that it found.
      std::vector<std::int64_t> looked_at;
      for (std::int64_t at = 0; at < size; at += std::max<std::int64_t>(1, size / 700)) {
        looked_at.push_back(at);
      }
      for (std::size_t i = 0; i < points.size(); i += 1 + points.size() / 100) {
        looked_at.push_back(points[i]);
      }
      for (const std::int64_t at : looked_at) {
        const bool found = std::binary_search(points.begin(), points.end(), at);
        const Configuration configuration = kernel_template.space.at(at);
        ASSERT_EQ(found, !refused_by_rule(maker, configuration)) << configuration.text();
        ++compared;
        obeyed += found ? 1 : 0;
      }
    }
  }
  EXPECT_GT(compared, 5000);
  EXPECT_GT(obeyed, 1000);
}

TEST(RuleTreeTest, ASpaceWithoutParametersHasOnePoint) {
  KernelTemplate kernel_template;
  std::vector<std::int64_t> points;
  RuleTree(kernel_template, {}).collect(0, 1, 0, points);
  EXPECT_EQ(points, std::vector<std::int64_t>{0});
}

TEST(RuleTreeTest, ARuleThatCannotBeComputedRejects) {
  KernelTemplate kernel_template;
  kernel_template.space = ParameterSpace({{"A", {0, 1, 2}}, {"B", {1, 2}}});
  kernel_template.rules = {{Expression::parse("10 / A > 5 || B == 2").value(), "", {}}};
  std::vector<std::int64_t> points;
  RuleTree(kernel_template, {}).collect(0, 6, 0, points);
  EXPECT_EQ(points, (std::vector<std::int64_t>{2, 3, 5})) << "A = 0 has no quotient";
}

TEST(RuleTreeTest, PointsMayBreakSoManyHabits) {
  KernelTemplate kernel_template;
  kernel_template.space = ParameterSpace({{"A", {0, 1, 2}}, {"B", {1, 2}}});
  kernel_template.rules = {{Expression::parse("A + B < 4").value(), "", {}}};
  kernel_template.habits = {{Expression::parse("10 / A > 5").value(), "", {}},
                            {Expression::parse("B == 2").value(), "", {}}};
  const std::vector<std::int64_t> expected[] = {{3}, {1, 2, 3}, {0, 1, 2, 3, 4}};
  for (std::size_t broken = 0; broken < 3; ++broken) {
    std::vector<std::int64_t> points;
    RuleTree(kernel_template, {}).collect(0, 6, broken, points);
    EXPECT_EQ(points, expected[broken]) << broken;
  }
}

}  // namespace
}  // namespace kernwright
