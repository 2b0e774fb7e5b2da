#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using WorkerCommandTest = ProgramTest;

TEST_F(WorkerCommandTest, RefusesToBeStartedByHand) {
  const Ran ran = kernwright({"worker"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("not started by kernwright"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace kernwright
