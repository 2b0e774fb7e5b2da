#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using WorkerCommandTest = ProgramTest;

TEST_F(WorkerCommandTest, RefusesToBeStartedByHand) {
  for (const char* command : {"worker", "sweeper"}) {
    const Ran ran = kernwright({command});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("not started by kernwright"), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace kernwright
