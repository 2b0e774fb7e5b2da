// Candidates of the built-in templates at the cases of their operations.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "tests/model/template_names.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

class CasesGpuTest : public TemplateChecks, public ::testing::WithParamInterface<std::string> {
 protected:
  const std::vector<OperationCase>& cases() const { return operation(GetParam()).cases; }

  /// Returns a few problems of every case.
  std::vector<std::string> few() const {
    std::vector<std::string> texts;
    for (const OperationCase& one : cases()) {
      for (std::string& text : one.few()) texts.push_back(std::move(text));
    }
    return texts;
  }
};

TEST_P(CasesGpuTest, DefaultsAreRightAtAllProblems) {
  for (const OperationCase& one : cases()) {
    check_defaults(one.all());
    if (HasFatalFailure()) return;
  }
}

TEST_P(CasesGpuTest, FinalistsTouchNoUnmappedPage) {
  std::uint64_t seed = 21;
  for (const std::string& text : few()) {
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen = defaults(list);
    for (const KernelTemplate* made : catalog_->templates_of(GetParam())) {
      for (const std::size_t one : some(list, made->name, 1, seed)) chosen.push_back(one);
    }
    check(problem, list, chosen, seed++, Runner::CheckDepth::finalist);
    if (HasFatalFailure()) return;
  }
}

/// The problems share about kConfigurations of every template.
TEST_P(CasesGpuTest, RandomConfigurationsAreRight) {
  constexpr std::size_t kConfigurations = 400;
  const std::vector<std::string> texts = few();
  const std::size_t count = std::clamp<std::size_t>(kConfigurations / texts.size(), 5, 30);
  std::set<std::string> covered;
  std::uint64_t seed = 100;
  for (const std::string& text : texts) {
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen;
    for (const KernelTemplate* made : catalog_->templates_of(GetParam())) {
      for (const std::size_t one : some(list, made->name, count, seed)) {
        covered.insert(made->name);
        chosen.push_back(one);
      }
    }
    check(problem, list, chosen, seed++);
    if (HasFatalFailure()) return;
  }
  for (const KernelTemplate* made : catalog_->templates_of(GetParam())) {
    EXPECT_EQ(covered.contains(made->name), made->runs_on(device_->profile().sm_arch))
        << made->name;
  }
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, CasesGpuTest, ::testing::ValuesIn(operation_names()),
                         template_test_name);

}  // namespace
}  // namespace kernwright
