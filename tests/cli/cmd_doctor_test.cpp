#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using DoctorTest = ProgramTest;

TEST_F(DoctorTest, TellsWhatIsHereAsTextAndAsJson) {
  const Ran text = kernwright({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("cache " + cache().string() + ": 0 records, 0 artifacts"),
            std::string::npos)
      << text.out;

  const Ran ran = kernwright({"doctor", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json report = ran.json();
  EXPECT_EQ(report["cache"]["root"], cache().string());
  // Either a device or the reason, either a compiler or the reason.
  EXPECT_EQ(report["device"].is_null(), report["devices"].empty());
  EXPECT_EQ(report["device"].is_null(), !report["no_device"].get<std::string>().empty());
  EXPECT_EQ(report["compiler"].is_null(), !report["no_compiler"].get<std::string>().empty());
}

TEST_F(DoctorTest, NamesWhatPutsForeignCodeIntoCudaProcesses) {
  environment_["CUDA_INJECTION64_PATH"] = "/opt/profiler.so";
  const nlohmann::json report = kernwright({"doctor", "--json"}).json();
  EXPECT_NE(report["distortions"].dump().find("CUDA_INJECTION64_PATH=/opt/profiler.so"),
            std::string::npos)
      << report["distortions"];
}

}  // namespace
}  // namespace kernwright
