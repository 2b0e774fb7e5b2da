// A product with a function of the user's own, through the public API.

#include <filesystem>
#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "support/files.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include <kernwright/kernwright.h>

namespace kernwright {
namespace {

class EpilogueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Result<std::string> toolkit = make_toolkit_compiler()->identity(); !toolkit) {
      GTEST_SKIP() << toolkit.error().message;
    }
    ASSERT_TRUE(publish_file(file_,
                             "__device__ float kernwright_epilogue(float value, int row, int "
                             "column) { return fminf(value, 1.0f) + (row + column) % 2; }"));
    options_.cache = (folder_ / "cache").native();
  }

  Service open(bool with_file) {
    options_.epilogues = {};
    if (with_file) options_.epilogues.push_back(file_.native());
    Result<Service> service = Service::open(options_);
    if (!service) throw std::runtime_error(service.error().message);
    return *std::move(service);
  }

  ScopedTempDir folder_;
  std::filesystem::path file_ = folder_ / "clip.cu";
  ServiceOptions options_;
  Problem problem_ = matmul({64, 512, 256}, DType::bf16).with("epilogue", "clip");
};

using EpilogueToolkitTest = EpilogueTest;

TEST_F(EpilogueToolkitTest, WhatIsCompiledIsServedByItsKeyWithoutTheFile) {
  options_.sku = "h200";
  const Service service = open(true);
  const Kernel kernel = must(service.get_best_kernel(problem_));
  const Compilation compiled = must(service.compile(problem_, "matmul/tiled", {}));
  EXPECT_TRUE(compiled.resources.warnings.empty());
  EXPECT_NE(service.compile(problem_.with("epilogue", "none"), "matmul/tiled", {})->artifact,
            compiled.artifact);

  const Service other = open(false);
  EXPECT_FALSE(other.get_best_kernel(problem_));
  const Result<Problem> key = Problem::parse(kernel.summary().problem);
  const Kernel again = must(other.get_best_kernel(*key));
  EXPECT_EQ(again.summary().artifact, kernel.summary().artifact);
}

class EpilogueGpuTest : public EpilogueTest {
 protected:
  void SetUp() override {
    if (const auto gpu = describe_cuda_device(0); !gpu) GTEST_SKIP() << gpu.error().message;
    EpilogueTest::SetUp();
  }
};

TEST_F(EpilogueGpuTest, TheTunedKernelIsTheOneThatIsServed) {
  Service tuner = open(true);
  const Kernel tuned = must(tuner.tune(problem_, {.seconds = 5}));
  options_.min_match = Match::exact;
  const Service service = open(true);
  const Kernel served = must(service.get_best_kernel(problem_));
  EXPECT_EQ(served.summary().match, Match::exact);
  EXPECT_EQ(served.summary().configuration, tuned.summary().configuration);
  EXPECT_FALSE(service.get_best_kernel(problem_.with("epilogue", "none")));
}

}  // namespace
}  // namespace kernwright
