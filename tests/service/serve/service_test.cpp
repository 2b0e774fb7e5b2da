#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// A service for an H200 that is not there.
class ServiceTest : public ::testing::Test {
 protected:
  Result<Service> open(const std::string& sku = "h200") const {
    return Service::open({.cache = cache_.path().native(), .sku = sku});
  }

  const ScopedTempDir cache_;
  const Problem problem_ = vector_add(4096, DType::bf16);
};

TEST_F(ServiceTest, WhatItCannotWorkWithIsNamed) {
  EXPECT_THAT(open("h9000"), Fails(ErrorCode::invalid_argument, HasSubstr("h9000")));
  EXPECT_THAT(Service::open(
                  {.cache = cache_.path().native(), .template_dirs = {"/nowhere"}, .sku = "h200"}),
              Fails("no folder of templates /nowhere"));
}

TEST_F(ServiceTest, NothingIsTunedWithoutAGpu) {
  Service service = must(open());
  EXPECT_EQ(service.tune(problem_, {.seconds = 1}).error().code, ErrorCode::unavailable);
  EXPECT_EQ(service.tune(problem_).error().code, ErrorCode::unavailable);
  EXPECT_THAT(service.tune(problem_, {.seconds = 0}), Fails("seconds is 0; it must be above 0"));
}

TEST_F(ServiceTest, WhatIsWrongWithAProblemIsSaidByEveryCall) {
  Service service = must(open());
  const Problem wrong = Problem::make("vector_add", {{"n", 0}}, {{"dtype", "bf16"}});
  EXPECT_EQ(service.get_best_kernel(wrong).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(service.compile(wrong, "vector_add/vectorized", {}).error().code,
            ErrorCode::invalid_argument);
  EXPECT_THAT(service.prewarm({wrong}), Fails(HasSubstr("n=0 is less than 1")));
  EXPECT_TRUE(service.lookup_counts().empty()) << "none of them was looked up";
}

TEST_F(ServiceTest, WhatDoesNotMakeACandidateIsNotCompiled) {
  Service service = must(open());
  EXPECT_FALSE(service.compile(problem_, "vector_add/none", {}));
  EXPECT_THAT(service.compile(problem_, "vector_add/vectorized", {{"WARPS", 4}}),
              Fails(HasSubstr("no parameter WARPS")));
}

TEST_F(ServiceTest, AServiceMayTakeThePlaceOfAnother) {
  Service service = must(open());
  service = *open("a100_80");
  const Result<Kernel> kernel =
      service.get_best_kernel(Problem::make("attention", {{"batch", 1}}, {{"dtype", "bf16"}}));
  EXPECT_EQ(kernel.error().code, ErrorCode::invalid_argument);
}

TEST(DefaultServiceTest, WithoutAGpuItSaysWhatIsMissing) {
  if (cuda_device_count()) GTEST_SKIP() << "there is a GPU here";
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(get_best_kernel(vector_add(4096, DType::bf16)),
                Fails(ErrorCode::unavailable, HasSubstr("no GPU to work on")));
  }
}

}  // namespace
}  // namespace kernwright
