#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "tests/temp_dir.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

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
  const Result<Service> unknown = open("h9000");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(unknown.error().message.find("h9000"), std::string::npos);
  const Result<Service> folder = Service::open(
      {.cache = cache_.path().native(), .template_dirs = {"/nowhere"}, .sku = "h200"});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "no folder of templates /nowhere");
}

TEST_F(ServiceTest, NothingIsTunedWithoutAGpu) {
  const Result<Service> service = open();
  ASSERT_TRUE(service) << service.error().message;
  EXPECT_EQ(service->tune(problem_, {.seconds = 1}).error().code, ErrorCode::unavailable);
}

TEST_F(ServiceTest, WhatIsWrongWithAProblemIsSaidByEveryCall) {
  const Result<Service> service = open();
  ASSERT_TRUE(service) << service.error().message;
  const Problem wrong = Problem::make("vector_add", {{"n", 0}}, {{"dtype", "bf16"}});
  EXPECT_EQ(service->get_best_kernel(wrong).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(service->compile(wrong, "vector_add/vectorized", {}).error().code,
            ErrorCode::invalid_argument);
  const Result<void> prewarmed = service->prewarm({wrong});
  ASSERT_FALSE(prewarmed);
  EXPECT_NE(prewarmed.error().message.find("n=0 is less than 1"), std::string::npos)
      << prewarmed.error().message;
  EXPECT_TRUE(service->lookup_counts().empty()) << "none of them was looked up";
}

TEST_F(ServiceTest, WhatDoesNotMakeACandidateIsNotCompiled) {
  const Result<Service> service = open();
  ASSERT_TRUE(service) << service.error().message;
  EXPECT_FALSE(service->compile(problem_, "vector_add/none", {}));
  const Result<Compilation> unknown =
      service->compile(problem_, "vector_add/vectorized", {{"WARPS", 4}});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("no parameter WARPS"), std::string::npos);
}

TEST_F(ServiceTest, AServiceMayTakeThePlaceOfAnother) {
  Result<Service> service = open();
  ASSERT_TRUE(service);
  *service = *open("a100_80");
  const Result<Kernel> kernel =
      service->get_best_kernel(Problem::make("attention", {{"batch", 1}}, {{"dtype", "bf16"}}));
  EXPECT_EQ(kernel.error().code, ErrorCode::invalid_argument);
}

TEST(DefaultServiceTest, WithoutAGpuItSaysWhatIsMissing) {
  if (cuda_device_count()) GTEST_SKIP() << "there is a GPU here";
  for (int i = 0; i < 2; ++i) {
    const Result<Kernel> kernel = get_best_kernel(vector_add(4096, DType::bf16));
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code, ErrorCode::unavailable);
    EXPECT_NE(kernel.error().message.find("no GPU to work on"), std::string::npos);
  }
}

}  // namespace
}  // namespace kernwright
