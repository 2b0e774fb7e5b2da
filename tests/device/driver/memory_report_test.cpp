#include "device/driver/memory_report.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace kernwright {
namespace {

GpuProcess process(unsigned int pid, const char* name, std::optional<std::int64_t> bytes) {
  GpuProcess process;
  process.pid = pid;
  process.name = name;
  process.used_bytes = bytes;
  return process;
}

TEST(MemoryReportTest, NamesThoseThatHoldMostTheLargestFirst) {
  EXPECT_EQ(describe_memory(1'200'000'000, 143'800'000'000, {}), "1.2 GB of 143.8 GB are free");
  EXPECT_EQ(
      describe_memory(1'200'000'000, 143'800'000'000,
                      {process(5, "", 2'000'000'000), process(6, "silent", std::nullopt),
                       process(7, "python3", 130'100'000'000),
                       process(static_cast<unsigned int>(getpid()), "kernwright", 10'500'000'000)}),
      "1.2 GB of 143.8 GB are free; process 7 (python3) holds 130.1 GB; this process holds "
      "10.5 GB; process 5 holds 2.0 GB");
}

TEST(MemoryReportTest, NamesNoMoreThanFour) {
  std::vector<GpuProcess> many;
  for (unsigned int pid = 1; pid <= 9; ++pid)
    many.push_back(process(pid, "", pid * 1'000'000'000LL));
  const std::string text = describe_memory(0, 100, many);
  EXPECT_NE(text.find("process 9 "), std::string::npos);
  EXPECT_NE(text.find("process 6 "), std::string::npos);
  EXPECT_EQ(text.find("process 5 "), std::string::npos);
}

}  // namespace
}  // namespace kernwright
