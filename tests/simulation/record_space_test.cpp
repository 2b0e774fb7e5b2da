#include "bench/simulation/record_space.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "bench/simulation/simulated_runner.h"
#include "bench/simulation/synthetic_space.h"
#include "bench/simulation/virtual_compile_queue.h"
#include "support/files.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

const LandscapeHeader kHeader{.space = "copy",
                              .device = "simulated",
                              .kernel = "synthetic",
                              .problem = "n=1",
                              .policy = "l2=cold",
                              .compiler = "none",
                              .sample_ms = 1.5};

/// Records a space of three ok configurations, one that is wrong and one that does not compile.
class RecordSpaceTest : public ::testing::Test {
 protected:
  RecordSpaceTest() : space_(gap_space("original", 100, std::vector<double>{0, 0.1, 0.2, 0.3, 0})) {
    space_.configurations[3].outcome = Outcome::wrong_result;
    space_.configurations[4].outcome = Outcome::compile_failed;
    space_.default_index = 1;
  }

  Result<LandscapeFile> open(const LandscapeHeader& header = kHeader) {
    return LandscapeFile::open(path_, header, candidates_.all(), space_.default_index);
  }
  Result<std::size_t> record(LandscapeFile& file, RecordingOptions options = {}) {
    VirtualClock clock;
    SimulatedRunner runner(space_, candidates_, clock, {.noise = noise_});
    VirtualCompileQueue queue(space_, candidates_, clock, 2);
    options.clock_seconds = [&clock] { return clock.seconds(); };
    const std::vector<double> predicted(space_.configurations.size(), 90);
    return record_space(candidates_.all(), predicted, space_.default_index,
                        find_profile("h200").value(), queue, runner, file, options);
  }

  RecordedSpace space_;
  BareCandidates candidates_{space_};
  NoiseModel noise_;
  ScopedTempDir directory_;
  std::filesystem::path path_ = directory_ / "copy.jsonl.gz";
};

TEST_F(RecordSpaceTest, WhatWasRecordedReadsBack) {
  auto file = must(open());
  const auto left = must(record(file));
  EXPECT_EQ(left, 0U);
  ASSERT_TRUE(file.finish());
  const auto read = must(read_recorded_space(path_));
  EXPECT_EQ(read.name, "copy");
  EXPECT_EQ(read.templates, space_.templates);
  ASSERT_EQ(read.configurations.size(), 5U);
  const BareCandidates again(read);
  EXPECT_EQ(again[read.default_index].id(), candidates_[1].id());
  for (std::size_t i = 0; i < 5; ++i) {
    const RecordedConfiguration& one = read.configurations[*again.find(candidates_[i].id())];
    EXPECT_EQ(one.outcome, space_.configurations[i].outcome) << i;
    if (one.outcome != Outcome::ok) continue;
    EXPECT_EQ(one.samples_us.size(), 32U);
    EXPECT_EQ(one.sm_mhz.size(), 32U);
    EXPECT_NEAR(one.truth_us, space_.configurations[i].truth_us, 1e-3);
    EXPECT_EQ(one.registers, 64);
    EXPECT_EQ(one.predicted_us, 90);
    EXPECT_NEAR(one.compile_seconds, 1, 1e-3);
  }
}

TEST_F(RecordSpaceTest, ARecordingGoesOnWhereItStopped) {
  RecordingOptions options;
  options.limit = 2;
  {
    auto file = must(open());
    ASSERT_TRUE(record(file, options));
    EXPECT_EQ(file.recorded(), 2U);
  }
  auto file = must(open());
  EXPECT_EQ(file.recorded(), 2U);
  EXPECT_TRUE(file.has(1)) << "the default comes first";
  std::size_t measured = 0;
  options.limit = 5;
  options.progress = [&](std::size_t, const LandscapeEntry&) { ++measured; };
  ASSERT_TRUE(record(file, options));
  EXPECT_EQ(measured, 3U);
  ASSERT_TRUE(file.finish());
  EXPECT_EQ(read_recorded_space(path_)->configurations.size(), 5U);
}

TEST_F(RecordSpaceTest, WhenTheTimeIsOverItSaysWhatIsLeft) {
  auto file = must(open());
  RecordingOptions options;
  options.seconds = 1.1;  // the compilers take one second each
  const auto left = must(record(file, options));
  EXPECT_GT(left, 0U);
  EXPECT_EQ(left + file.recorded(), 5U);
}

TEST_F(RecordSpaceTest, WhoTookTheProcessAlongIsNotTriedAgain) {
  {
    auto file = must(open());
    ASSERT_TRUE(file.begin(2));
  }
  auto file = must(open());
  EXPECT_TRUE(file.has(2));
  ASSERT_TRUE(record(file));
  ASSERT_TRUE(file.finish());
  const auto read = must(read_recorded_space(path_));
  const BareCandidates again(read);
  EXPECT_EQ(read.configurations[*again.find(candidates_[2].id())].outcome, Outcome::worker_died);
}

TEST_F(RecordSpaceTest, ALostDeviceIsInTheFile) {
  space_.configurations[1].outcome = Outcome::device_lost;
  auto file = must(open());
  EXPECT_THAT(record(file), Fails(ErrorCode::device));
  EXPECT_TRUE(file.has(1));
}

TEST_F(RecordSpaceTest, AnotherSpacesFileIsRefused) {
  ASSERT_TRUE(open());
  LandscapeHeader other = kHeader;
  other.problem = "n=2";
  EXPECT_THAT(open(other), Fails(ErrorCode::invalid_argument, HasSubstr("n=2")));
}

TEST_F(RecordSpaceTest, ADefectiveFileIsRefused) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(append_line(path_.string() + ".part", R"({"c":[7,7],"ok":true})"));
  EXPECT_THAT(open(), Fails(ErrorCode::corrupt));
}

}  // namespace
}  // namespace kernwright
