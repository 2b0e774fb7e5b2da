#include "cache/records/trial_table.h"

#include <gtest/gtest.h>
#include <string>

#include "support/text.h"
#include "tests/results.h"

namespace kernwright {
namespace {

TrialRow row(const std::string& kernel_template, Configuration configuration) {
  return {.choice = {kernel_template, std::move(configuration)},
          .us = 16.797,
          .samples = 2,
          .predicted_us = 21.286,
          .at_seconds = 0.41,
          .registers = 40};
}

TrialTable table() {
  TrialTable table{.finals_seconds = 2.25, .wall_seconds = 3, .rows = {}};
  table.rows.push_back(row("matmul/tiled", Configuration({{"BM", 128}, {"STAGES", 4}})));
  table.rows.push_back(row("matmul/skinny", Configuration({{"SPLIT", -1}})));
  TrialRow failed = row("matmul/tiled", Configuration({{"BM", 64}, {"STAGES", 3}}));
  failed.outcome = Outcome::wrong_result;
  failed.detail = "d[3,17]: 0.5 != 0.25 \"</script>\"";
  failed.us = 0;
  failed.samples = 0;
  table.rows.push_back(failed);
  table.rows.push_back(row("vector_add/plain", Configuration()));
  return table;
}

TEST(TrialTableTest, ComesBackFromItsText) {
  const TrialTable back = must(parse_trial_table(to_json(table())));
  EXPECT_EQ(back, table());
  EXPECT_EQ(*parse_trial_table(to_json(TrialTable{})), TrialTable{});
}

TEST(TrialTableTest, KeepsOfATrialWhatAReportShows) {
  Trial trial;
  trial.choice = {"matmul/tiled", Configuration({{"BM", 128}})};
  trial.outcome = Outcome::ok;
  trial.measurement.samples_us = {10.0 / 3, 20.0 / 3, 5};
  trial.predicted_us = 1e5 / 3;
  trial.at_seconds = 2.0 / 3;
  trial.resources = {.registers = 168, .spill_store_bytes = 8, .spill_load_bytes = 4};
  trial.detail = std::string(1000, 'x');
  const TrialTable kept = trial_table(std::vector{trial}, 1, 2);
  ASSERT_EQ(kept.rows.size(), 1U);
  const TrialRow& row = kept.rows[0];
  EXPECT_EQ(row.us, 5);
  EXPECT_EQ(row.samples, 3);
  EXPECT_EQ(row.predicted_us, 33330) << "rounded";
  EXPECT_EQ(row.at_seconds, 0.667);
  EXPECT_EQ(row.registers, 168);
  EXPECT_EQ(row.spill_bytes, 12);
  EXPECT_EQ(row.detail.size(), kLongestDetail);
  EXPECT_EQ(kept.finals_seconds, 1);
  EXPECT_EQ(kept.wall_seconds, 2);
}

TEST(TrialTableTest, TakesSomeThirtyFiveBytesATrial) {
  TrialTable many;
  for (int i = 0; i < 400; ++i) {
    many.rows.push_back(row("matmul/persistent_wave", Configuration({{"BM", 128},
                                                                     {"BN", 256},
                                                                     {"BK", 64},
                                                                     {"STAGES", 4},
                                                                     {"CM", 1},
                                                                     {"CN", 1},
                                                                     {"TRANSPOSED", 0},
                                                                     {"OVERLAP", 1},
                                                                     {"PINGPONG", 0},
                                                                     {"PERSISTENT", i % 2}})));
  }
  EXPECT_LT(to_json(many).size(), 400U * 37);
}

TEST(TrialTableTest, AColumnOfManyValuesComesBack) {
  TrialTable many;
  for (int i = 0; i < 5000; ++i) {
    many.rows.push_back(row("op/one", Configuration({{"A", 7 * i}, {"B", i % 65}})));
    many.rows.back().registers = i % 64;
  }
  const TrialTable back = must(parse_trial_table(to_json(many)));
  EXPECT_EQ(back, many);
}

TEST(TrialTableTest, ATextThatDoesNotFitIsCorruptAndNamesWhy) {
  const std::string good = to_json(table());
  const auto error_with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << good;
    if (at == std::string::npos) return std::string();
    text.replace(at, from.size(), to);
    const Result<TrialTable> parsed = parse_trial_table(text);
    EXPECT_FALSE(parsed) << to;
    if (parsed) return std::string();
    EXPECT_EQ(parsed.error().code, ErrorCode::corrupt);
    return parsed.error().message;
  };
  EXPECT_EQ(error_with("\"template\":\"ABAC\"", "\"template\":\"ABAD\""),
            "trials: template: no value at place D");
  EXPECT_EQ(error_with("\"template\":\"ABAC\"", "\"template\":\"AB C\""),
            "trials: template: no value at place  ");
  EXPECT_EQ(error_with("\"template\":\"ABAC\"", "\"template\":\"AAAC\""),
            "trials: matmul/tiled has too few values of BM");
  EXPECT_EQ(error_with("\"wrong_result\"", "\"odd\""), "trials: unknown outcome \"odd\"");
  EXPECT_EQ(error_with("\"us\":[16.797,", "\"us\":["), "trials: a column has 3 rows, another 4");
  EXPECT_EQ(error_with("\"registers\":{\"values\":[40", "\"registers\":{\"values\":[0.5"),
            "trials: registers.values[0]: a 64-bit integer expected, not 0.5");
}

}  // namespace
}  // namespace kernwright
