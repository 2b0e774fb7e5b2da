#include "device/cuda/describe_device.h"

#include <gtest/gtest.h>

#include "device/driver/nvml.h"
#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

TEST(ModuleVersionTest, IsTheTextOfTheFileIfThatIsAVersion) {
  const ScopedTempDir folder;
  const auto file = folder / "version";
  EXPECT_EQ(module_version(file), "") << "no file";
  for (const auto& [text, version] :
       {std::pair{"580.159.04\n", "580.159.04"}, std::pair{"550.54", "550.54"}, std::pair{"\n", ""},
        std::pair{"NVRM version: 580.1\n", ""}}) {
    ASSERT_TRUE(publish_file(file, text));
    EXPECT_EQ(module_version(file), version);
  }
}

TEST(ModuleVersionGpuTest, IsThatOfNvml) {
  const std::string version = module_version();
  if (version.empty()) GTEST_SKIP() << "the driver's kernel module shows no version here";
  const Result<const NvmlApi*> nvml = load_nvml();
  if (!nvml) GTEST_SKIP() << nvml.error().message;
  EXPECT_EQ(nvml_driver_version(**nvml), version);
}

}  // namespace
}  // namespace kernwright
