// Candidates of the built-in templates at the cases of their operations.

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/model/template_names.h"
#include "tests/model/valid_candidates.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

class CasesGpuTest : public TemplateChecks, public ::testing::WithParamInterface<std::string> {
 protected:
  /// Returns a few problems of every case of an operation.
  std::vector<std::string> few_of(std::string_view name) const {
    std::vector<std::string> texts;
    for (const OperationCase& one : operation(name).cases) {
      for (std::string& text : one.few()) texts.push_back(std::move(text));
    }
    return texts;
  }
};

TEST_P(CasesGpuTest, DefaultsAreRightAtAllProblems) {
  for (const OperationCase& one : operation(GetParam()).cases) {
    check_defaults(one.all());
    if (HasFatalFailure()) return;
  }
}

/// Takes about kProblems at most: such a check takes many times as long as a screening.
TEST_P(CasesGpuTest, FinalistsTouchNoUnmappedPage) {
  constexpr std::size_t kProblems = 150;
  const std::vector<std::string> texts = few_of(GetParam());
  for (std::size_t i = 0; i < texts.size(); i += 1 + texts.size() / kProblems) {
    const BoundProblem problem = bound(texts[i]);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen = defaults(list);
    for (const KernelTemplate* made : catalog_->templates_of(GetParam())) {
      for (const std::size_t one : some(list, made->name, 1, i)) chosen.push_back(one);
    }
    check(problem, list, chosen, 21 + i, Runner::CheckDepth::finalist);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, CasesGpuTest, ::testing::ValuesIn(operation_names()),
                         template_test_name);

/// Tests one template, because there are more than a thousand configurations of some.
class RandomConfigurationsGpuTest : public CasesGpuTest {};

/// The problems share about kConfigurations.
TEST_P(RandomConfigurationsGpuTest, AreRightAtAFewProblemsOfEveryCase) {
  constexpr std::size_t kConfigurations = 400;
  const KernelTemplate& made = **catalog_->kernel_template(GetParam());
  const std::vector<std::string> texts = few_of(made.operation);
  const std::size_t count = std::clamp<std::size_t>(kConfigurations / texts.size(), 5, 30);
  bool covered = false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const BoundProblem problem = bound(texts[i]);
    if (!applies(made, problem, device_->profile())) continue;
    CandidateList list;
    list.candidates = valid_candidates(made, problem, device_->profile());
    const std::vector<std::size_t> chosen = some(list, made.name, count, i);
    covered = covered || !chosen.empty();
    check(problem, list, chosen, 100 + i);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(covered, made.runs_on(device_->profile().sm_arch));
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, RandomConfigurationsGpuTest,
                         ::testing::ValuesIn(template_names()), template_test_name);

}  // namespace
}  // namespace kernwright
