#include "support/processes/run_program.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(RunProgramTest, ItReadsTheInputAndGivesTheOutput) {
  const Result<ProgramOutput> ran = run_program("cat", {"-"}, "a line\nand another");
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->status.code, 0);
  EXPECT_EQ(ran->out, "a line\nand another");
}

TEST(RunProgramTest, MoreThanAPipeHoldsPassesThrough) {
  const std::string much(1 << 20, 'x');
  const Result<ProgramOutput> ran = run_program("cat", {}, much);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->out, much);
  EXPECT_TRUE(run_program("true", {}, much)) << "one that does not read its input";
}

TEST(RunProgramTest, HowItEndedIsAnAnswer) {
  const Result<ProgramOutput> failed = run_program("sh", {"-c", "echo why; exit 3"}, {});
  ASSERT_TRUE(failed) << failed.error().message;
  EXPECT_EQ(failed->status.text(), "exit status 3");
  EXPECT_EQ(failed->out, "why\n");
  const Result<ProgramOutput> killed = run_program("sh", {"-c", "kill -9 $$"}, {});
  ASSERT_TRUE(killed) << killed.error().message;
  EXPECT_EQ(killed->status.signal, 9);
}

TEST(RunProgramTest, AProgramThatIsNotThereIsNamed) {
  const Result<ProgramOutput> none = run_program("kernwright-no-such-program", {}, {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "cannot start kernwright-no-such-program: No such file or directory");
}

}  // namespace
}  // namespace kernwright
