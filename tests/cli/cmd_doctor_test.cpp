#include <set>
#include <string>

#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using DoctorTest = ProgramTest;

TEST_F(DoctorTest, TellsWhatIsHereAsTextAndAsJson) {
  const Ran text = kernwright({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("  cache     " + cache().string() + ": 0 records, 0 artifacts"));
  expect_width(text.out, 80);

  const Ran ran = kernwright({"doctor", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json report = ran.json();
  EXPECT_EQ(report["cache"]["root"], cache().string());
  // Either a device or the reason, either a compiler or the reason.
  EXPECT_EQ(report["device"].is_null(), report["devices"].empty());
  EXPECT_EQ(report["device"].is_null(), !report["no_device"].get<std::string>().empty());
  EXPECT_EQ(report["compiler"].is_null(), !report["no_compiler"].get<std::string>().empty());
}

TEST_F(DoctorTest, SaysWhatToDoNext) {
  environment_["KERNWRIGHT_CUDA_PATH"] = "/nonexistent/cuda";
  const nlohmann::json report = kernwright({"doctor", "--json"}).json();
  ASSERT_FALSE(report["next"].empty());
  EXPECT_THAT(report["next"][0].get<std::string>(), HasSubstr("set KERNWRIGHT_CUDA_PATH"));
  const Ran text = kernwright({"doctor"});
  EXPECT_THAT(flat(text.out), HasSubstr("next install NVRTC and nvJitLink")) << text.out;
}

TEST_F(DoctorTest, AuditsWhatCanBeSaid) {
  environment_["CUDA_INJECTION64_PATH"] = "/opt/profiler.so";
  const nlohmann::json report = kernwright({"doctor", "--json"}).json();
  EXPECT_EQ(report["audit"]["trust"], "C");
  std::set<std::string> checks;
  for (const nlohmann::json& row : report["audit"]["rows"]) {
    checks.insert(row["check"]);
    if (row["check"] != "injection_variables") continue;
    EXPECT_EQ(row["trust"], "C");
    EXPECT_EQ(row["detail"], "CUDA_INJECTION64_PATH=/opt/profiler.so");
  }
  for (const char* check : {"injection_variables", "mapped_libraries", "host_load", "mps"}) {
    EXPECT_TRUE(checks.contains(check)) << check;
  }
  const Ran text = kernwright({"doctor"});
  EXPECT_THAT(text.out, HasSubstr("  trust C\n"));
  EXPECT_THAT(text.out, HasSubstr("C for injection_variables: CUDA_INJECTION64_PATH="));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("A for "))) << "what is well is a detail";
  EXPECT_THAT(kernwright({"doctor", "--verbose"}).out, HasSubstr("A for mapped_libraries: "));
}

}  // namespace
}  // namespace kernwright
