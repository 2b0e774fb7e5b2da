// The cases of the built-in operations.

#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/template_names.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

class CasesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CasesTest, EachProblemHasAReferenceItsInputsAndAKernel) {
  const Operation& operation = **catalog().operation(GetParam());
  ASSERT_FALSE(operation.cases.empty());
  std::vector<std::string> kernels;  // that draw inputs
  if (const auto& input = operation.input_kernels) {
    for (const auto& kernel : {input->timing, input->exact, input->count, input->nan}) {
      if (kernel.empty()) continue;
      EXPECT_NE(input->source.find(concat("void ", kernel, "(")), std::string::npos) << kernel;
      kernels.push_back(kernel);
    }
  }
  std::set<std::string> seen;
  for (const OperationCase& one : operation.cases) {
    for (const std::string& text : one.all()) {
      const auto problem = catalog().bind(Problem::parse(text).value());
      ASSERT_TRUE(problem) << problem.error().message;
      EXPECT_TRUE(make_reference_plan(*problem, h200())) << text;
      for (const std::string& kernel : kernels) {
        EXPECT_TRUE(make_input_plan(*problem, kernel, h200())) << text;
      }
      bool any = false;
      for (const KernelTemplate* made : catalog().templates_of(operation.name)) {
        if (any && seen.contains(made->name)) continue;
        if (valid_candidates(*made, *problem, h200(), 1).empty()) continue;
        any = true;
        seen.insert(made->name);
      }
      EXPECT_TRUE(any) << text;
    }
  }
  for (const KernelTemplate* made : catalog().templates_of(operation.name)) {
    EXPECT_EQ(seen.contains(made->name), made->runs_on(h200().sm_arch)) << made->name;
  }
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, CasesTest, ::testing::ValuesIn(operation_names()),
                         template_test_name);

}  // namespace
}  // namespace kernwright
