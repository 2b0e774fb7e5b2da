#include "support/processes/subprocess.h"

#include <csignal>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "support/files.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using testing::HasSubstr;

Result<Subprocess> shell(std::string script, std::vector<std::string> removed = {}) {
  return Subprocess::spawn({"/bin/sh", {"-c", std::move(script)}, std::move(removed)});
}

TEST(SubprocessTest, SaysHowAProcessEnded) {
  auto process = shell("echo 'what went' >&2; echo wrong >&2; exit 3");
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_EQ(process->wait(kNoDeadline).value().text(), "exit status 3");
  EXPECT_EQ(process->wait(kNoDeadline).value().code, 3) << "asked again";
  EXPECT_EQ(process->last_words(), "what went wrong");

  process = shell("kill -SEGV $$");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->wait(kNoDeadline).value().text(), "signal 11 (SIGSEGV)");
}

TEST(SubprocessTest, AMissingProgramIsNamed) {
  EXPECT_THAT(Subprocess::spawn({"/nowhere/at/all", {}, {}}),
              Fails(HasSubstr("cannot start /nowhere/at/all")));
}

TEST(SubprocessTest, KillsTheWholeGroupPastTheDeadline) {
  const ScopedTempDir directory;
  const auto file = directory / "grandchild";
  auto process = must(shell(concat("sleep 1000 & echo $! > ", file.native(), ".part; mv ",
                                   file.native(), ".part ", file.native(), "; wait")));
  while (!std::filesystem::exists(file)) ::usleep(1000);
  EXPECT_FALSE(process.wait(deadline_in(0)));
  process.kill();
  EXPECT_EQ(process.wait(kNoDeadline).value().text(), "signal 9 (SIGKILL)");
  const std::string stat = concat("/proc/", trim(read_file(file).value()), "/stat");
  for (int i = 0; i < 60'000; ++i) {
    const auto status = read_file(stat);
    if (!status || status->find(") Z ") != std::string::npos) return;
    ::usleep(1000);
  }
  FAIL() << "the grandchild lives";
}

TEST(SubprocessTest, IsGoneWithItsOwner) {
  pid_t pid = -1;
  {
    auto process = must(shell("sleep 1000"));
    pid = process.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(SubprocessTest, AStartReapsNobodyElse) {
  {
    Result<Subprocess> moved_from = shell("exit 1"), owner = std::move(moved_from);
  }
  auto other = must(shell("exit 7"));
  // Ended, and not yet asked for.
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(other.pid()), &ended, WEXITED | WNOWAIT), 0);
  ASSERT_TRUE(shell("exit 0"));
  EXPECT_EQ(other.wait(kNoDeadline).value().code, 7);
}

TEST(SubprocessTest, VariablesAreRemovedByName) {
  ::setenv("KERNWRIGHT_TEST_KEPT", "kept", 1);
  ::setenv("KERNWRIGHT_TEST_REMOVED", "x", 1);
  auto process = must(shell("echo $KERNWRIGHT_TEST_KEPT${KERNWRIGHT_TEST_REMOVED:-removed} >&2",
                            {"KERNWRIGHT_TEST_REMOVED", "KERNWRIGHT_TEST_ABSENT"}));
  process.wait(kNoDeadline);
  EXPECT_EQ(process.last_words(), "keptremoved");
  ::unsetenv("KERNWRIGHT_TEST_KEPT");
  ::unsetenv("KERNWRIGHT_TEST_REMOVED");
}

TEST(SubprocessTest, InheritsNothingButTheChannel) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // not closed on exec
  auto process = must(shell("for fd in /proc/self/fd/*; do readlink $fd >&2; done"));
  process.wait(kNoDeadline);
  EXPECT_THAT(process.last_words(), HasSubstr("socket:"));
  EXPECT_THAT(process.last_words(), ::testing::Not(HasSubstr("pipe:")));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SubprocessTest, BytesOfTheChildArriveAsAMessage) {
  auto process = must(shell(R"(printf '\005\000\000\000hello' >&3)"));
  auto message = must(process.channel().receive());
  EXPECT_EQ(message.text, "hello");
  EXPECT_EQ(process.channel().receive().error().code, ErrorCode::unavailable);
}

TEST(SubprocessTest, ByHandThereIsNoChannel) {
  EXPECT_THAT(inherited_channel(), Fails(HasSubstr("not started by kernwright")));
}

}  // namespace
}  // namespace kernwright
