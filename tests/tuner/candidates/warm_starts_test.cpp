#include "tuner/candidates/warm_starts.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "cache/stores/record_store.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class WarmStartsTest : public ::testing::Test {
 protected:
  static RankedConfiguration ranked(int value, bool tied = false) {
    RankedConfiguration one;
    one.choice.kernel_template = "matmul/tiled";
    one.choice.configuration = Configuration({{"BM", value}});
    one.tied = tied;
    return one;
  }
  static TuningRecord record(std::string problem, int winner, std::string sku = "h200") {
    TuningRecord made;
    made.key.problem = std::move(problem);
    made.key.target = "sm_90";
    made.key.sku = std::move(sku);
    made.winner = ranked(winner);
    return made;
  }
  static std::string problem(int m, int n = 4096) {
    return concat("matmul m=", m, " n=", n, " k=4096 dtype=bf16");
  }
  std::vector<std::int64_t> found_values() const {
    std::vector<std::int64_t> values;
    for (const Choice& choice : find_warm_starts(bound(key_.problem), key_, runs())) {
      values.push_back(choice.configuration.at("BM"));
    }
    return values;
  }
  /// The records in files, in their order.
  std::vector<RecordRun> runs() const {
    std::vector<RecordRun> runs;
    for (const TuningRecord& record : records_) {
      runs.push_back({store_.put(record).value(), head_of(record)});
    }
    return runs;
  }
  BoundProblem bound(std::string_view text) const {
    return catalog_->bind(Problem::parse(text).value()).value();
  }

  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  RecordKey key_ = record(problem(4096), 0).key;
  std::vector<TuningRecord> records_;
  ScopedTempDir dir_;
  RecordStore store_{dir_.path()};
};

TEST_F(WarmStartsTest, DistanceIsTheNormOfTheLogRatios) {
  const auto at = [](const std::string& text) { return Problem::parse(text).value(); };
  EXPECT_EQ(neighbour_distance(bound(problem(4096)), at(problem(4096))), 0);
  EXPECT_EQ(neighbour_distance(bound(problem(4096)), at(problem(512))), 3);
  EXPECT_NEAR(*neighbour_distance(bound(problem(4096)), at(problem(8192, 2048))), std::sqrt(2),
              1e-12);
  EXPECT_EQ(neighbour_distance(bound(problem(4096)), at("matmul m=4096 n=4096 k=4096 dtype=fp16")),
            std::nullopt);
}

TEST_F(WarmStartsTest, AFlagThatDiffersCountsOne) {
  const BoundProblem a = bound("rmsnorm rows=64 columns=4096 dtype=fp16");
  EXPECT_EQ(neighbour_distance(a, a.problem().with("weight", "scale")), 0) << "the default";
  EXPECT_EQ(neighbour_distance(a, a.problem().with("weight", "none")), 1);
}

TEST_F(WarmStartsTest, NearestFirstAndWinnersBeforeTies) {
  records_ = {record(problem(512), 3), record(problem(2048), 1), record(problem(1024), 2)};
  records_[1].runners_up = {ranked(11, true), ranked(99, false), ranked(12, true)};
  records_[2].runners_up = {ranked(21, true)};
  EXPECT_EQ(found_values(), (std::vector<std::int64_t>{1, 2, 3, 11, 21, 12}));
}

TEST_F(WarmStartsTest, FiveNeighboursAndEightChoicesAtMostEachOnce) {
  for (int i = 1; i <= 7; ++i) {
    records_.push_back(record(problem(4096 + 64 * i), i));
    for (int tie = 1; tie <= 3; ++tie) records_.back().runners_up.push_back(ranked(7 + tie, true));
  }
  EXPECT_EQ(found_values(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 8, 9, 10}));
  for (int i = 0; i < 5; ++i)
    records_[static_cast<std::size_t>(i)].runners_up.front() = ranked(50 + i, true);
  EXPECT_EQ(found_values().size(), 8U);
}

TEST_F(WarmStartsTest, OtherSkusComeLastFourAtMost) {
  records_ = {record(problem(4096), 7, "a100_80"), record(problem(64), 1)};
  for (int tie = 1; tie <= 6; ++tie) records_[0].runners_up.push_back(ranked(10 + tie, true));
  const auto found = find_warm_starts(bound(key_.problem), key_, runs());
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0].configuration.at("BM"), 1);
  EXPECT_EQ(found[1].configuration.at("BM"), 7);
}

TEST_F(WarmStartsTest, LeavesOutItselfPredictionsOtherOperationsAndDtypes) {
  records_ = {record(problem(4096), 1), record(problem(2048), 2),
              record("rmsnorm rows=64 columns=4096 dtype=bf16", 3),
              record("matmul m=4096 n=4096 k=4096 dtype=fp16", 4), record("no = problem", 5)};
  records_[1].grade = RecordGrade::predicted;
  EXPECT_TRUE(found_values().empty());
}

TEST_F(WarmStartsTest, TheFirstRecordOfAKeyCountsAndTheOrderOfKeysDoesNot) {
  records_ = {record(problem(2048), 1), record(problem(2048), 2), record(problem(8192), 3)};
  const auto forward = found_values();
  EXPECT_EQ(forward.size(), 2U);
  std::rotate(records_.begin(), records_.begin() + 2, records_.end());
  EXPECT_EQ(found_values(), forward);
}

TEST_F(WarmStartsTest, TheSameProblemUnderAnotherPolicyIsTheNearest) {
  records_ = {record(problem(2048), 2), record(problem(4096), 1)};
  records_[1].key.policy.l2 = L2State::warm;
  EXPECT_EQ(found_values(), (std::vector<std::int64_t>{1, 2}));
}

}  // namespace
}  // namespace kernwright
