// Operations whose inputs have a meaning, checked as a search does: drawn as other inputs are,
// their kernels would read or write out of bounds.

#include "tests/results.h"
#include "tests/tuner/templates/index_operations.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class IndexOperationsGpuTest : public TemplateChecks {
 protected:
  void SetUp() override {
    TemplateChecks::SetUp();
    if (device_ == nullptr) return;
    ASSERT_NO_FATAL_FAILURE(load_catalog({files_.directory().path()}));
  }
  IndexOperations files_;
};

TEST_F(IndexOperationsGpuTest, ArePassedByTheChecks) {
  std::vector<std::string> problems{
      "inverse n=1 dtype=int32",         "inverse n=100003 dtype=int32",
      "inverse n=100003 dtype=int64",    "count segments=1 total=1000",
      "count segments=3000 total=70001", "count segments=3000 total=70"};
  for (const DType dtype : operation("gather").type_variables[0].dtypes) {
    for (const char* index : {"int32", "int64"}) {
      problems.push_back(
          concat("gather n=3001 rows=501 columns=67 dtype=", to_string(dtype), " index=", index));
    }
  }
  check_defaults(problems);
  check_finalists({"gather n=301 rows=51 columns=67 dtype=fp8_e5m2 index=int64",
                   "inverse n=1003 dtype=int32", "count segments=30 total=701"});
}

TEST_F(IndexOperationsGpuTest, AnIntegerThatIsOffByOneIsWrong) {
  const BoundProblem problem = bound("inverse n=1000 dtype=int64");
  const CandidateList list = enumerate(problem);
  const auto runner = must(open_runner(problem));
  CompileRequest request = render(list.candidates[0], *catalog_, device_->profile().sm_arch);
  const std::string right = "base + i";
  request.source.replace(request.source.find(right), right.size(), "base + i + (i == 7)");
  const CompileResult kernel = pool_->submit(std::move(request)).get();
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto prepared = must(runner->prepare(list.candidates[0], *kernel.value()));
  const auto checked = must(runner->check(prepared.id, Runner::CheckDepth::screening));
  EXPECT_EQ(to_string(checked.step.outcome), "wrong_result");
  EXPECT_THAT(checked.step.detail, HasSubstr("1000000015 != 1000000014 (exact)"));
}

}  // namespace
}  // namespace kernwright
