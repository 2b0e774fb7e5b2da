#include "service/sweep/sweep_problem.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

/// Sweeps for an H200 that is not there.
class SweepProblemTest : public ServiceCoreTest {
 protected:
  SweepResult sweep() {
    return sweep_problem(*core_, problem_, {.seconds = 7.0},
                         [this](const Problem& problem, const TuningOptions& options) {
                           ++tuned_;
                           EXPECT_EQ(options.budget.seconds, 7);
                           return core_->predict(problem, {.trials = 1});
                         });
  }

  std::shared_ptr<ServiceCore> core_ = open(MissPolicy::predict, "h200");
  int tuned_ = 0;
};

TEST_F(SweepProblemTest, TunesOnlyWhatTheCacheLacks) {
  const SweepResult first = sweep();
  ASSERT_TRUE(first.record) << first.error;
  EXPECT_FALSE(first.found);
  const SweepResult second = sweep();
  EXPECT_TRUE(second.found);
  EXPECT_EQ(tuned_, 1);
  EXPECT_EQ(to_json(*second.record), to_json(*first.record));
}

TEST_F(SweepProblemTest, AnErrorIsTheResult) {
  const SweepResult result = sweep_problem(
      *core_, problem_, {}, [](const Problem&, const TuningOptions&) -> Result<TuningResult> {
        return Error{ErrorCode::unavailable, "no compiler"};
      });
  EXPECT_FALSE(result.record);
  EXPECT_EQ(result.error, "no compiler");
}

TEST_F(SweepProblemTest, AProblemThatIsNoneIsNotTuned) {
  problem_ = Problem::make("vector_sub", {{"n", 4}});
  EXPECT_NE(sweep().error.find("\"vector_sub\""), std::string::npos);
  EXPECT_EQ(tuned_, 0);
}

TEST_F(SweepProblemTest, TheNextThatIsDueIsCompiledAhead) {
  core_ = open();
  ASSERT_TRUE(core_->tune(problem_, few_trials()));
  core_.reset();  // and with it what still compiles
  core_ = open();
  const Problem none = Problem::make("vector_sub", {{"n", 4}});
  const int before = world_.compiles;
  compile_for_next(*core_, std::vector{problem_, none}, {});
  EXPECT_EQ(world_.compiles, before) << "none is due";
  const Problem due = vector_add(1 << 20, DType::fp32);
  compile_for_next(*core_, std::vector{problem_, none, due}, {});
  while (world_.compiles == before) std::this_thread::yield();
  EXPECT_TRUE(core_->tune(due, few_trials()));
}

TEST_F(SweepProblemTest, ARangeThatWasTunedIsFound) {
  shortlists_ = true;
  core_ = open();
  const Problem family = must(Problem::parse("vector_add n=2..4096 dtype=bf16"));
  FamilyOptions options;
  options.seconds = 12;  // of the fake device
  options.clock_seconds = [this] { return world_.clock.now_us() / 1e6; };
  FamilyRecord record = must(core_->tune_family(family, std::move(options))).record;
  EXPECT_FALSE(settled_family(*core_, family, false)) << "it has trust C";
  record.head.trust = Trust::b;
  must(core_->cache().put_family(record));
  const SweepResult result = sweep_family(*core_, family, {});
  ASSERT_TRUE(result.found) << result.error;
  EXPECT_EQ(result.family, record.head);
  const auto read = parse_sweep_result(to_json(result));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->family, result.family);
}

TEST_F(SweepProblemTest, ARangeIsNotPredicted) {
  const Problem family = must(Problem::parse("vector_add n=2..64 dtype=bf16"));
  const SweepResult result = sweep_family(*core_, family, {});
  EXPECT_FALSE(result.family);
  EXPECT_NE(result.error, "");
}

TEST_F(SweepProblemTest, OneLineOfJsonHoldsTheResult) {
  const SweepResult result = sweep();
  const std::string line = to_json(result);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = parse_sweep_result(line);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), line);
  SweepResult failed;
  failed.error = "no compiler";
  EXPECT_EQ(parse_sweep_result(to_json(failed))->error, "no compiler");
}

}  // namespace
}  // namespace kernwright
