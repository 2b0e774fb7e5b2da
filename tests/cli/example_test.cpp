#include "support/text.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

constexpr const char* kExample = "get_best_kernel";

using ExampleTest = ProgramTest;
using ExampleToolkitTest = ToolkitProgramTest;
using ExampleGpuTest = GpuProgramTest;

TEST_F(ExampleTest, WithoutAGpuItSaysSoAndIsSkipped) {
  if (cuda_device_count()) GTEST_SKIP() << "there is a GPU here";
  const Ran ran = run(kExample, {});
  EXPECT_EQ(ran.exit_code, 77) << ran.err;
  EXPECT_NE(ran.out.find("no GPU"), std::string::npos) << ran.out;
}

TEST_F(ExampleTest, AnArgumentThatIsNoNumberIsNamed) {
  for (const char* wrong : {"abc", "64x", ""}) {
    const Ran ran = run(kExample, {"64", wrong, "256", "--sku", "h200"});
    EXPECT_EQ(ran.exit_code, 2) << ran.out;
    EXPECT_NE(ran.err.find(concat("'", wrong, "' is not a whole number")), std::string::npos)
        << ran.err;
  }
}

TEST_F(ExampleToolkitTest, ForASkuItDescribesAndASecondRunLoadsNoCompiler) {
  const std::vector<std::string> arguments = {"64", "128", "256", "--sku", "h200"};
  const Ran first = run(kExample, arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("problem: matmul m=64 n=128 k=256 dtype=bf16"), std::string::npos);
  EXPECT_NE(first.out.find("match: predicted"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("compiler libraries loaded: libnvrtc"), std::string::npos) << first.out;
  const Ran second = run(kExample, arguments);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.out.find("compiler libraries loaded: none"), std::string::npos) << second.out;
}

TEST_F(ExampleToolkitTest, ABundleOnAReadOnlyFileSystemServesWithoutACompiler) {
  ASSERT_EQ(run(kExample, {"64", "128", "256", "--sku", "h200"}).exit_code, 0);
  const std::string keys = (dir_ / "fleet").string();
  const std::string bundle = (dir_ / "bundle").string();
  const std::string served = (dir_ / "served").string();
  const Ran made = kernwright({"cache", "keygen", keys});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_EQ(kernwright({"cache", "export", bundle, "--key", keys + ".key"}).exit_code, 0);
  const Ran installed =
      kernwright({"cache", "install", bundle, "--cache", served, "--trusted-keys", keys + ".pub"});
  ASSERT_EQ(installed.exit_code, 0) << installed.err;

  environment_["KERNWRIGHT_CACHE"] = served;
  environment_["HOME"] = "/nowhere";
  const Ran served_alone = run(kExample, {"64", "128", "256", "--sku", "h200"});
  EXPECT_EQ(served_alone.exit_code, 0) << served_alone.err;
  EXPECT_NE(served_alone.out.find("compiler libraries loaded: none"), std::string::npos)
      << served_alone.out;

  const std::string read_only =
      concat("mount --bind ", served, " ", served, " && mount -o remount,bind,ro ", served);
  const auto confined = [this](const std::string& line) {
    return shell(concat("unshare --map-root-user --mount sh -c '", line, "'"));
  };
  if (const Ran mounted = confined(read_only); mounted.exit_code != 0) {
    GTEST_SKIP() << "no mount of one's own: " << mounted.err;
  }
  EXPECT_NE(confined(concat(read_only, " && touch ", served, "/file")).exit_code, 0);
  const Ran ran = confined(concat(read_only, " && get_best_kernel 64 128 256 --sku h200"));
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("match: predicted"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("compiler libraries loaded: none"), std::string::npos) << ran.out;
  const Ran missing = confined(concat(read_only, " && get_best_kernel 64 128 264 --sku h200"));
  EXPECT_NE(missing.out.find("compiler libraries loaded: libnvrtc"), std::string::npos)
      << "what the bundle lacks is compiled";
}

TEST_F(ExampleGpuTest, TheSecondRunMatchesExactlyAndLoadsNoCompiler) {
  const std::vector<std::string> arguments = {"512", "768", "1024"};
  const Ran first = run(kExample, arguments);
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_NE(first.out.find("result: right"), std::string::npos) << first.out;
  const Ran second = run(kExample, arguments);
  EXPECT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_NE(second.out.find("match: exact"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("compiler libraries loaded: none"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("result: right"), std::string::npos) << second.out;
}

TEST_F(ExampleGpuTest, AWinnerThatNeedsAWorkspaceIsLaunchedLikeAnyOther) {
  const Ran ran = run(kExample, {"128", "1024", "16384"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("result: right"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace kernwright
