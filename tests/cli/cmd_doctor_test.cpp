#include <set>
#include <string>

#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using DoctorTest = ProgramTest;

TEST_F(DoctorTest, TellsWhatIsHereAsTextAndAsJson) {
  const Ran text = kernwright({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("  cache     " + cache().string() + ": 0 records, 0 artifacts"),
            std::string::npos)
      << text.out;
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
  EXPECT_NE(report["next"][0].get<std::string>().find("set KERNWRIGHT_CUDA_PATH"),
            std::string::npos);
  const Ran text = kernwright({"doctor"});
  EXPECT_NE(flat(text.out).find("next install NVRTC and nvJitLink"), std::string::npos) << text.out;
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
  EXPECT_NE(text.out.find("  trust C\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("C for injection_variables: CUDA_INJECTION64_PATH="), std::string::npos)
      << text.out;
  EXPECT_EQ(text.out.find("A for "), std::string::npos) << "what is well is a detail: " << text.out;
  EXPECT_NE(kernwright({"doctor", "--verbose"}).out.find("A for mapped_libraries: "),
            std::string::npos);
}

}  // namespace
}  // namespace kernwright
