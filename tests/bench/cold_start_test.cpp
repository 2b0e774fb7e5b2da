#include "bench/common/cold_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/results.h"

namespace kernwright {
namespace {

ColdStart some_start() {
  ColdStart start;
  start.spawned = 1'000'000'000'000;
  start.main = start.spawned + 2;
  start.context = start.main + 300;
  start.opened = start.context + 40;
  start.served = start.opened + 5;
  start.buffers = start.served + 600;
  start.launched = start.buffers + 70;
  start.finished = start.launched + 8000;
  start.kernel = "matmul/skinny BM=64";
  start.match = "exact";
  return start;
}

TEST(ColdStartTest, ContextAndBuffersAreTheCallers) {
  EXPECT_EQ(some_start().ours_ns(), 2 + 40 + 5 + 70);
}

TEST(ColdStartTest, ALineBringsEverythingBack) {
  const ColdStart start = some_start();
  const ColdStart read = must(read_cold_start(to_line(start)));
  EXPECT_EQ(to_line(read), to_line(start));
  EXPECT_EQ(read.ours_ns(), start.ours_ns());
  EXPECT_EQ(read.kernel, start.kernel);
  EXPECT_EQ(read.match, start.match);
}

TEST(ColdStartTest, AnythingElseIsRefused) {
  for (const char* line : {"", "{}", "12", R"({"spawned": 1})", R"({"spawned": "soon"})"}) {
    EXPECT_THAT(read_cold_start(line), Fails(ErrorCode::corrupt)) << line;
  }
}

TEST(ColdStartTest, CompilersAreFoundAmongMappedFiles) {
  constexpr const char* kServing =
      "7f10-7f20 r-xp 00000000 08:01 11 /usr/lib/libcuda.so.550.54\n"
      "7f30-7f40 r-xp 00000000 08:01 12 /usr/lib/libnvidia-ptxjitcompiler.so.550.54\n"
      "7f50-7f60 rw-p 00000000 00:00 0\n"
      "7f60-7f70 rw-p 00000000 00:00 0  [heap]\n";
  EXPECT_THAT(mapped_compilers(kServing), ::testing::IsEmpty());
  constexpr const char* kCompiling =
      "7f10-7f20 r--p 00000000 08:01 11 /opt/cuda/lib/libnvrtc.so.12\n"
      "7f20-7f30 r-xp 00001000 08:01 11 /opt/cuda/lib/libnvrtc.so.12\n"
      "7f30-7f40 r-xp 00000000 08:01 12 /opt/cuda/lib/libnvJitLink.so.12\n";
  EXPECT_THAT(mapped_compilers(kCompiling),
              ::testing::ElementsAre("libnvrtc.so.12", "libnvJitLink.so.12"));
}

}  // namespace
}  // namespace kernwright
