#include <bit>
#include <gtest/gtest.h>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/service/c/c_kernel_fixture.h"
#include <kernwright/c.h>

namespace kernwright {
namespace {

/// x -> kernel with the scalar 3 -> buffer -> kernel -> y
class CApiChainTest : public CKernelFixture {
 protected:
  CApiChainTest() {
    kw_chain_builder* builder = nullptr;
    EXPECT_EQ(kw_chain_begin(&builder), 0) << kw_last_error();
    kw_chain_arg in{};
    in.kind = KW_PARAMETER;
    EXPECT_EQ(kw_chain_parameter(builder, kTensors[0], &in.slot), 0) << kw_last_error();
    kw_chain_arg between{};
    between.kind = KW_BUFFER;
    EXPECT_EQ(kw_chain_buffer(builder, 4096, &between.slot), 0) << kw_last_error();
    kw_chain_arg three{};
    three.kind = KW_SCALAR;
    three.scalar = 3;
    kw_chain_arg out{};
    out.kind = KW_POINTER;
    out.pointer = kTensors[1];
    const kw_chain_arg first[] = {in, between, three};
    const kw_chain_arg second[] = {between, out};
    EXPECT_EQ(kw_chain_add(builder, kernel_, first, 3), 0) << kw_last_error();
    EXPECT_EQ(kw_chain_add(builder, kernel_, second, 2), 0) << kw_last_error();
    EXPECT_EQ(kw_chain_build(builder, &chain_), 0) << kw_last_error();
    kw_chain_end(builder);
  }
  ~CApiChainTest() override { kw_release_chain(chain_); }

  nlohmann::json described() const { return nlohmann::json::parse(kw_describe_chain(chain_)); }

  kw_chain* chain_ = nullptr;
};

TEST_F(CApiChainTest, AllKindsOfArgumentsAreWired) {
  ASSERT_EQ(kw_set_chain_path(chain_, "stream"), 0) << kw_last_error();
  driver_.launches.clear();
  ASSERT_EQ(kw_launch_chain(chain_, nullptr), 0) << kw_last_error();
  ASSERT_EQ(driver_.launches.size(), 2U);
  EXPECT_EQ(driver_.launches[0].value(2), std::bit_cast<std::uint32_t>(3.0F));
  EXPECT_EQ(driver_.launches[1].value(1), kY);
  EXPECT_EQ(driver_.launches[1].value(2), std::bit_cast<std::uint32_t>(2.0F)) << "its default";
}

TEST_F(CApiChainTest, APathIsChosenByItsName) {
  EXPECT_EQ(described()["kernels"], 2);
  ASSERT_EQ(kw_set_chain_path(chain_, "stream"), 0) << kw_last_error();
  EXPECT_EQ(described()["path"], "stream");
  EXPECT_EQ(kw_set_chain_path(chain_, "fast"), -1);
  EXPECT_STREQ(kw_last_error(), "the chain has no path \"fast\"; it has stream, graph");
  EXPECT_EQ(kw_set_chain_path(chain_, "programmatic_graph"), -1);
  EXPECT_EQ(described()["path"], "stream");
}

TEST_F(CApiChainTest, WhatTuningTimedIsDescribed) {
  EXPECT_FALSE(described()["paths"][0].contains("host_us"));
  ASSERT_EQ(kw_tune_chain(chain_, nullptr), 0) << kw_last_error();
  const nlohmann::json after = described();
  ASSERT_EQ(after["paths"].size(), 2U);
  for (const nlohmann::json& path : after["paths"]) {
    EXPECT_GT(path["host_us"], 0) << path;
    EXPECT_GT(path["period_us"], 0) << path;
  }
}

TEST_F(CApiChainTest, AFailedTuningLeavesTheDriversWords) {
  driver_.failures["cuStreamSynchronize"] = CUDA_ERROR_LAUNCH_FAILED;
  EXPECT_EQ(kw_tune_chain(chain_, nullptr), -1);
  EXPECT_NE(std::string(kw_last_error()).find("cuStreamSynchronize"), std::string::npos)
      << kw_last_error();
  driver_.failures.clear();
  EXPECT_FALSE(described()["paths"][0].contains("host_us"));
}

TEST_F(CApiChainTest, AKernelMayHaveAlternatives) {
  kw_chain_builder* builder = nullptr;
  ASSERT_EQ(kw_chain_begin(&builder), 0);
  kw_chain_arg arguments[2] = {};
  for (std::size_t i = 0; i < 2; ++i) arguments[i].pointer = kTensors[i];
  kw_kernel* kernels[2] = {kernel_, nullptr};
  EXPECT_EQ(kw_chain_add_alternatives(builder, kernels, 2, arguments, 2), -1);
  EXPECT_STREQ(kw_last_error(), "kernels[1] is null");
  kernels[1] = kernel_;
  ASSERT_EQ(kw_chain_add_alternatives(builder, kernels, 2, arguments, 2), 0) << kw_last_error();
  kw_chain* chain = nullptr;
  ASSERT_EQ(kw_chain_build(builder, &chain), 0) << kw_last_error();
  const nlohmann::json chosen = nlohmann::json::parse(kw_describe_chain(chain))["chosen"];
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_TRUE(chosen[0].contains("template"));
  EXPECT_TRUE(chosen[0].contains("configuration"));
  kw_release_chain(chain);
  kw_chain_end(builder);
}

TEST_F(CApiChainTest, MoreMemoryThanThereIsIsRefused) {
  kw_chain_builder* builder = nullptr;
  ASSERT_EQ(kw_chain_begin(&builder), 0);
  kw_chain_arg arguments[2] = {};
  arguments[0].pointer = kTensors[0];
  arguments[1].kind = KW_BUFFER;
  ASSERT_EQ(kw_chain_buffer(builder, static_cast<std::size_t>(-1), &arguments[1].slot), 0);
  ASSERT_EQ(kw_chain_add(builder, kernel_, arguments, 2), 0) << kw_last_error();
  kw_chain* chain = nullptr;
  EXPECT_EQ(kw_chain_build(builder, &chain), -1);
  EXPECT_EQ(chain, nullptr);
  kw_chain_end(builder);
}

}  // namespace
}  // namespace kernwright
