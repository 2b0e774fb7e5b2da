#include "tests/cli/walkthrough.h"

#include <algorithm>
#include <cstdint>

#include "examples/device_memory.h"
#include "tests/results.h"
#include "tuner/data/element.h"
#include <kernwright/kernwright.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kCount = 1000003;

class WalkthroughToolkitTest : public WalkthroughFixture<ToolkitProgramTest> {};

/// Runs the same on a GPU: the commands without --sku.
class WalkthroughGpuTest : public WalkthroughFixture<GpuProgramTest> {};

Result<Kernel> fetch(const Service& service) {
  return service.get_best_kernel(Problem::make("scaled_add", {{"n", kCount}}, {{"dtype", "bf16"}}));
}

TEST_F(WalkthroughToolkitTest, ItsCommandsRunAsTheyStandThere) {
  ASSERT_EQ(walkthrough_.commands.size(), 2U);
  for (const std::string& command : walkthrough_.commands) {
    EXPECT_THAT(command, HasSubstr("~/my_templates"));
    const Ran ran = shell(command);
    EXPECT_EQ(ran.exit_code, 0) << command << "\n" << ran.out << ran.err;
    const bool checks = command.find("kernwright check") != std::string::npos;
    EXPECT_THAT(ran.out, HasSubstr(checks ? "0 defects" : "scaled_add"));
  }

  const Service service = must(Service::open({.cache = cache().string(),
                                              .template_dirs = {templates()},
                                              .sku = "h200",
                                              .on_miss = MissPolicy::fail}));
  const Kernel kernel = must(fetch(service));
  EXPECT_EQ(kernel.summary().kernel_template, "scaled_add/tiles");
  EXPECT_EQ(kernel.match(), Match::predicted);
  ASSERT_EQ(kernel.arguments().size(), 4U);
  EXPECT_EQ(kernel.arguments()[3].name, "alpha");
}

TEST_F(WalkthroughToolkitTest, TheDefectItShowsIsReportedAsItSays) {
  edit("tiles/manifest.json", R"("default": {"THREADS": 256, "ITEMS": 4})",
       R"("default": {"THREADS": 128, "ITEMS": 1})");
  const Ran ran = kernwright({"check", templates()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, HasSubstr(templates() + "/scaled_add/tiles/manifest.json:17: rule "
                                               "\"TILE >= 256 && TILE <= 4096\" failed: 128 < 256 "
                                               "(smaller tiles"))
      << ran.out << ran.err;
}

TEST_F(WalkthroughGpuTest, TheKernelIsTunedFetchedAndRight) {
  for (std::string command : walkthrough_.commands) {
    constexpr std::string_view kSku = " --sku h200";
    if (const std::size_t at = command.find(kSku); at != std::string::npos) {
      command.erase(at, kSku.size());
    }
    if (command.find(" tune ") != std::string::npos) command += " --seconds 5";
    const Ran ran = shell(command);
    ASSERT_EQ(ran.exit_code, 0) << command << "\n" << ran.out << ran.err;
  }

  const Service service = must(Service::open(
      {.cache = cache().string(), .template_dirs = {templates()}, .on_miss = MissPolicy::fail}));
  const Kernel kernel = must(fetch(service));
  EXPECT_EQ(kernel.match(), Match::exact);

  Gpu gpu;
  ASSERT_EQ(gpu.open(), "");
  std::vector<Gpu::Address> tensors;
  std::vector<std::uint16_t> host(kCount);
  for (int tensor = 0; tensor < 3; ++tensor) {
    // x[i] = i % 64, y[i] = i % 64 + 1: exact in bf16, and so is the result.
    for (std::int64_t i = 0; i < kCount; ++i) {
      store_element(host.data(), DType::bf16, i, static_cast<double>(i % 64 + tensor));
    }
    tensors.push_back(gpu.upload(host));
  }
  must(kernel.launch(nullptr, {tensors[0], tensors[1], tensors[2], 2.0}));
  host = gpu.download<std::uint16_t>(tensors[2], kCount);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double expected = 3.0 * static_cast<double>(i % 64) + 1;
    if (load_element(host.data(), DType::bf16, i) != expected) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kernwright
