#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include <nlohmann/json.hpp>

#include "device/cuda_device.h"
#include "tests/comma_locale.h"
#include "tests/temp_dir.h"
#include <kernwright/c.h>

namespace kernwright {
namespace {

TEST(CApiTest, FailuresLeaveTheirReason) {
  kw_service* service = nullptr;
  kw_options options{};
  options.struct_size = sizeof options;
  options.sku = "h9000";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "h9000"), nullptr) << kw_last_error();
  EXPECT_EQ(service, nullptr);

  options.sku = "h200";
  options.on_miss = "guess";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "guess"), nullptr) << kw_last_error();

  options.on_miss = nullptr;
  options.l2 = "hot";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_STREQ(kw_last_error(), "kw_options.l2 is \"hot\"; it must be cold, warm or mixed");

  options.l2 = nullptr;
  options.epilogue = "/nowhere/clamp.cu";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "/nowhere/clamp.cu"), nullptr) << kw_last_error();

  kw_options unset{};
  EXPECT_EQ(kw_open(&unset, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "struct_size"), nullptr) << kw_last_error();
}

TEST(CApiTest, FieldsBeyondTheCallersStructAreNotRead) {
  const ScopedTempDir cache;
  const std::string root = cache.path();
  kw_options options{};
  options.struct_size = offsetof(kw_options, worker);
  options.cache = root.c_str();
  options.sku = "h200";
  options.worker = reinterpret_cast<const char*>(16);  // what lies behind an older, smaller struct
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_close(service);
}

TEST(CApiTest, AServiceOpensUnderAnyLocaleOfTheHost) {
  const CommaLocale locale;
  if (!locale.missing().empty()) GTEST_SKIP() << locale.missing();
  const ScopedTempDir cache;
  const std::string root = cache.path();
  for (const char* sku : {"h200", "b200", "a100_80", "rtx_4090"}) {
    kw_options options{};
    options.struct_size = sizeof options;
    options.cache = root.c_str();
    options.sku = sku;
    kw_service* service = nullptr;
    ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
    kw_close(service);
  }
}

TEST(CApiGpuTest, TheWorkerIsThatOfTheOptionsUnlessMeasuringInProcess) {
  if (const auto gpu = describe_cuda_device(0); !gpu) GTEST_SKIP() << gpu.error().message;
  const ScopedTempDir cache;
  const std::string root = cache.path();
  kw_options options{};
  options.struct_size = sizeof options;
  options.cache = root.c_str();
  options.worker = "/nowhere/kernwright";
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  const char* problem = "vector_add n=1000 dtype=fp32";
  EXPECT_EQ(kw_tune(service, problem, 2, &kernel), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "/nowhere/kernwright"), nullptr) << kw_last_error();
  kw_close(service);

  options.measure_in_process = 1;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  ASSERT_EQ(kw_tune(service, problem, 2, &kernel), 0) << kw_last_error();
  EXPECT_NE(std::strstr(kw_describe(kernel), "\"match\":\"exact\""), nullptr)
      << kw_describe(kernel);
  kw_release(kernel);
  kw_close(service);
}

TEST(CApiToolkitTest, AKernelIsPredictedAndDescribedForASku) {
  const ScopedTempDir cache;
  const std::string root = cache.path();
  kw_options options{};
  options.struct_size = sizeof options;
  options.cache = root.c_str();
  options.sku = "h200";
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  if (kw_get_best_kernel(service, "vector_add n=1000 dtype=fp32", &kernel) != 0 &&
      std::strstr(kw_last_error(), "nvrtc") != nullptr) {
    GTEST_SKIP() << kw_last_error();
  }
  ASSERT_NE(kernel, nullptr) << kw_last_error();
  kw_close(service);

  const nlohmann::json description = nlohmann::json::parse(kw_describe(kernel));
  EXPECT_EQ(description["problem"], "vector_add n=1000 dtype=fp32");
  EXPECT_EQ(description["match"], "predicted");
  EXPECT_TRUE(description["best_path"].is_null());
  ASSERT_EQ(description["arguments"].size(), 3U);
  EXPECT_EQ(description["arguments"][2]["output"], true);
  EXPECT_EQ(description["arguments"][0]["extent"][0], 1000);
  EXPECT_EQ(kw_workspace_bytes(kernel), 0U);

  const void* tensors[3] = {};
  EXPECT_EQ(kw_launch(kernel, nullptr, tensors, 3, nullptr, 0, nullptr), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(kw_launch_checked(kernel, nullptr, tensors, 3, nullptr, 0, nullptr), -1);
  kw_baked* baked = nullptr;
  EXPECT_EQ(kw_bake(kernel, tensors, 3, nullptr, 0, &baked), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(baked, nullptr);

  kw_chain_builder* builder = nullptr;
  ASSERT_EQ(kw_chain_begin(&builder), 0);
  size_t buffer = 9;
  ASSERT_EQ(kw_chain_buffer(builder, 4000, &buffer), 0);
  EXPECT_EQ(buffer, 0U);
  kw_chain_arg arguments[3] = {};
  arguments[2].kind = KW_BUFFER;
  EXPECT_EQ(kw_chain_add(builder, kernel, arguments, 3), 0) << kw_last_error();
  arguments[2].kind = 7;
  EXPECT_EQ(kw_chain_add(builder, kernel, arguments, 3), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "kw_chain_arg.kind is 7"), nullptr) << kw_last_error();
  kw_chain* chain = nullptr;
  EXPECT_EQ(kw_chain_build(builder, &chain), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(chain, nullptr);
  kw_chain_end(builder);
  kw_release(kernel);
}

}  // namespace
}  // namespace kernwright
