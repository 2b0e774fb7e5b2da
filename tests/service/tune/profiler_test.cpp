#include "service/tune/profiler.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service/tune/tuning_desk.h"
#include "tests/results.h"
#include "tests/service/site_fixture.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// A cache with a tuned record, and a profiler whose process is this one.
class ProfilerTest : public SiteFixture {
 protected:
  void SetUp() override {
    const Surroundings surroundings = fake_surroundings(world_);
    TuningDesk desk(site_, *builder_, answers_,
                    {.in_process = true,
                     .open_device = surroundings.open_device,
                     .make_data_ops = surroundings.make_data_ops});
    tuned_ = must(desk.tune(problem_, {.budget = {.trials = 6}})).record;
    world_.counters = [this](const ExecutionPlan& plan) -> Result<CounterSet> {
      if (!refusal_.message.empty() && counted_ >= allowed_) return refusal_;
      ++counted_;
      CounterSet set;
      set.version = "13.0";
      set.passes = 4;
      for (const LaunchPlan& launch : plan.launches) {
        set.kernels.push_back({launch.kernel, launch.grid, {judged(kTimeCounter, 5000)}});
      }
      return set;
    };
  }
  Result<Profiled> profile(int more = 0) {
    Profiler profiler(site_, *builder_, answers_, {}, [this](MeasuringContext context) {
      ++opened_;
      const Surroundings surroundings = fake_surroundings(world_);
      return measure_in_process(std::move(context), surroundings.open_device,
                                surroundings.make_data_ops);
    });
    return profiler.profile(problem_, more);
  }
  TuningRecord stored() const { return find_record(answers_, problem_)->record; }
  std::size_t files() const { return answers_.look_up(problem_).records.size(); }

  const std::unique_ptr<Builder> builder_ = builder();
  const AnswerFinder answers_{site_, *builder_};
  const BoundProblem problem_ = *site_.bind(vector_add(64, DType::bf16));
  TuningRecord tuned_;
  Error refusal_{ErrorCode::unavailable, ""};
  int allowed_ = 0;  ///< sets before the refusal
  int counted_ = 0;
  int opened_ = 0;
};

TEST_F(ProfilerTest, TheRecordKeepsCountersOfWinnerAndDefaultColdAndWarm) {
  const Profiled profiled = must(profile());
  const bool both = tuned_.baseline->choice != tuned_.winner.choice;
  EXPECT_EQ(profiled.counted, both ? 2 : 1);
  const TuningRecord kept = stored();
  ASSERT_EQ(kept.counters.size(), both ? 4U : 2U);
  EXPECT_EQ(kept.counters[0].choice, tuned_.winner.choice);
  EXPECT_EQ(kept.counters[0].cache, L2State::cold);
  EXPECT_EQ(kept.counters[1].cache, L2State::warm);
  EXPECT_EQ(kept.counters[0].time_us(), 5);
  EXPECT_EQ(kept.counters, profiled.record.counters);
}

TEST_F(ProfilerTest, NothingElseInTheRecordChanges) {
  ASSERT_TRUE(profile());
  TuningRecord kept = stored();
  kept.counters.clear();
  EXPECT_EQ(to_json(kept), to_json(tuned_));
  EXPECT_EQ(files(), 1U) << "it stands in place of the record without counters";
}

TEST_F(ProfilerTest, CountingAgainReplacesWhatWasCounted) {
  ASSERT_TRUE(profile());
  const std::size_t sets = stored().counters.size();
  ASSERT_TRUE(profile());
  EXPECT_EQ(stored().counters.size(), sets);
  EXPECT_EQ(files(), 1U);
}

TEST_F(ProfilerTest, RunnersUpAreCountedWhereTheyAreAskedFor) {
  const std::size_t all = profiled_candidates(tuned_, 7).size();
  ASSERT_GT(all, profiled_candidates(tuned_, 0).size());
  const Profiled profiled = must(profile(7));
  EXPECT_EQ(profiled.counted, static_cast<int>(all));
}

TEST_F(ProfilerTest, WhereNothingMayBeCountedTheRecordStaysAsItIs) {
  refusal_.message = "another profiler has the counters";
  EXPECT_THAT(profile(),
              Fails(ErrorCode::unavailable, HasSubstr("another profiler has the counters")));
  EXPECT_EQ(to_json(stored()), to_json(tuned_));
}

TEST_F(ProfilerTest, ARunnerUpThatFailsIsNotedAndTheOthersAreKept) {
  refusal_ = {ErrorCode::device, "CUPTI counted 2 kernels of a launch that has 1"};
  allowed_ = 2;  // the winner's
  const Profiled profiled = must(profile(1));
  EXPECT_EQ(profiled.counted, 1);
  ASSERT_FALSE(profiled.notes.empty());
  EXPECT_THAT(profiled.notes.front(), HasSubstr("was not counted: CUPTI counted 2"));
  EXPECT_EQ(stored().counters.size(), 2U);
}

TEST_F(ProfilerTest, WithoutARecordThereIsNothingToProfile) {
  std::filesystem::remove_all(dir_ / "v1");
  EXPECT_THAT(profile(), Fails(ErrorCode::not_found, HasSubstr("tune it first")));
  EXPECT_EQ(opened_, 0);
}

TEST_F(ProfilerTest, WithoutAGpuNothingIsCounted) {
  site_.has_device = false;
  EXPECT_THAT(profile().error().message, HasSubstr("for the sku h200 without one"));
}

}  // namespace
}  // namespace kernwright
