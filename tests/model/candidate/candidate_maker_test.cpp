#include "model/candidate/candidate_maker.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

#include "model/catalog/catalog.h"
#include "tests/model/samples.h"

namespace kernwright {
namespace {

TEST(CandidateMakerTest, RulesAreObeyedWhereNoneOfThemRejects) {
  const auto catalog = Catalog::load({});
  ASSERT_TRUE(catalog) << catalog.error().message;
  const DeviceProfile profile = h200();
  int made_of_all = 0;
  int rejected = 0;
  for (const KernelTemplate& kernel_template : (*catalog)->templates()) {
    const Operation& operation = **(*catalog)->operation(kernel_template.operation);
    const BoundProblem problem = BoundProblem::bind(operation, operation.example).value();
    if (!applies(kernel_template, problem, profile)) continue;
    const CandidateMaker maker(kernel_template, problem, profile);
    const std::int64_t size = kernel_template.space.size();
    const std::int64_t stride = std::max<std::int64_t>(1, size / 300);
    for (std::int64_t at = 0; at < size; at += stride) {
      const Configuration point = kernel_template.space.at(at);
      const Result<Candidate> made = maker.make(point);
      const std::string why = made ? std::string() : made.error().message;
      const bool by_rule =
          why.find(": rule \"") != std::string::npos || why.find(": derived") != std::string::npos;
      EXPECT_EQ(maker.obeys_rules(point), !by_rule)
          << kernel_template.name << ' ' << point.text() << ' ' << why;
      made_of_all += made ? 1 : 0;
      rejected += by_rule ? 1 : 0;
    }
  }
  EXPECT_GT(made_of_all, 300);
  EXPECT_GT(rejected, 300);
}

TEST(CandidateMakerTest, NothingElseThanThePointsOfTheSpaceObeys) {
  const Operation operation = scale_operation();
  const KernelTemplate kernel_template = scale_template(operation);
  const BoundProblem problem = BoundProblem::bind(operation, scale_problem(100, 256)).value();
  const DeviceProfile profile = h200();
  const CandidateMaker maker(kernel_template, problem, profile);
  EXPECT_TRUE(maker.obeys_rules(Configuration({{"ROWS", 8}, {"STAGES", 2}, {"GROUP", 4}})));
  EXPECT_FALSE(maker.obeys_rules(Configuration({{"ROWS", 7}, {"STAGES", 2}, {"GROUP", 4}})));
  EXPECT_FALSE(maker.obeys_rules(Configuration({{"ROWS", 8}, {"STAGES", 2}})));
}

}  // namespace
}  // namespace kernwright
