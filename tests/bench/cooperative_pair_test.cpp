#include "bench/common/cooperative_pair.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <string_view>

#include "tests/compile/toolkit_world.h"
#include "tests/results.h"

namespace kernwright {
namespace {

class CooperativePairToolkitTest : public ToolkitWorld {
 protected:
  const DeviceProfile profile_ = *find_profile("h200");
};

TEST_F(CooperativePairToolkitTest, FitsTheMultiprocessorsThatItIsLaunchedOn) {
  for (const PairShape& shape :
       {PairShape{128, 4096, 512, 1024, 0}, PairShape{4096, 8192, 512, 1024, 2},
        PairShape{4096, 8192, 1024, 1024, 2}}) {
    const auto pair = must(make_row_pair(*catalog_, profile_, shape));
    const Result<void> resident = check_resident(pair, shape, profile_);
    EXPECT_TRUE(resident) << resident.error().message;
    CompileRequest request = pair.request;
    request.target = "sm_90a";
    const CompileResult compiled = pool_->submit(request).get();
    ASSERT_TRUE(compiled) << compiled.error().message;
    const CompiledKernel& kernel = **compiled;
    ASSERT_EQ(kernel.entries.size(), 1U) << "the two are functions of the pair";
    EXPECT_EQ(kernel.entries[0].name, "rmsnorm_softmax");
    const Resources& resources = kernel.entries[0].resources;
    EXPECT_EQ(resources.spill_bytes(), 0);
    EXPECT_LE(resources.registers * shape.resident, 65536);
    const LaunchPlan& launch = pair.plan.launches[0];
    const std::int64_t blocks = shape.resident / shape.threads;
    const std::int64_t smem = std::int64_t{resources.static_smem_bytes} + launch.dynamic_smem;
    EXPECT_LE(blocks * (smem + 1024), profile_.smem_per_sm);
    EXPECT_TRUE(launch.cooperative);
  }
}

TEST_F(CooperativePairToolkitTest, PassesTheArgumentsOfBothAndTheBarrier) {
  const auto pair = must(make_row_pair(*catalog_, profile_, {128, 4096, 512, 1024, 0}));
  const auto& first = pair.first.plan;
  const auto& second = pair.second.plan;
  EXPECT_EQ(pair.plan.tensors.size(), first.tensors.size() + second.tensors.size());
  const auto& arguments = pair.plan.launches[0].arguments;
  ASSERT_EQ(arguments.size(),
            first.launches[0].arguments.size() + second.launches[0].arguments.size() + 1);
  const ArgumentPlan& scores = arguments[first.launches[0].arguments.size()];
  EXPECT_EQ(scores.kind, ArgumentKind::tensor);
  EXPECT_EQ(scores.index, first.tensors.size()) << "the second's x";
  EXPECT_EQ(arguments.back().kind, ArgumentKind::workspace);
}

TEST_F(CooperativePairToolkitTest, WhatTheFirstWroteIsNotReadAsIfItNeverChanged) {
  const auto pair = must(make_row_pair(*catalog_, profile_, {128, 4096, 512, 1024, 0}));
  const auto reads_only = [&](std::string_view header) {
    for (const auto& [name, text] : pair.request.headers) {
      if (name == header) return text.find("Load::read_only") != text.npos;
    }
    ADD_FAILURE() << "no " << header;
    return false;
  };
  EXPECT_TRUE(reads_only("first/rows/row.cuh"));
  EXPECT_FALSE(reads_only("second/rows/row.cuh"));
}

TEST_F(CooperativePairToolkitTest, ABlockPerRowIsForFewRows) {
  const PairShape many{4096, 8192, 512, 1024, 0};
  const auto pair = must(make_row_pair(*catalog_, profile_, many));
  EXPECT_THAT(check_resident(pair, many, profile_),
              Fails("of 4096 blocks 264 are resident at once"));
}

}  // namespace
}  // namespace kernwright
