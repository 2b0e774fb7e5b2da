#include "model/result/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

std::vector<CounterSet> sample_sets() {
  CounterSet cold;
  cold.choice = {"matmul/tiled", Configuration({{"BM", 64}})};
  cold.version = "13.0";
  cold.passes = 4;
  cold.kernels = {{"tiled",
                   {132, 2, 1},
                   {{std::string(kTimeCounter), 5216.5, ""},
                    {std::string(kDramShareCounter), std::nullopt, "NaN"},
                    {std::string(kL2HitCounter), 103.9, "beyond 100"}}},
                  {"reduce", {1, 1, 1}, {{std::string(kTimeCounter), 0.1 + 0.2, ""}}}};
  CounterSet train;
  train.source = CounterSource::ncu;
  train.mode = CounterMode::train;
  train.cache = L2State::warm;
  return {cold, train};
}

std::string text_of(const std::vector<CounterSet>& sets) {
  FieldWriter json;
  json.field("counters", sets);
  return json.text();
}

Result<std::vector<CounterSet>> read(const std::string& text) {
  std::vector<CounterSet> sets;
  KW_TRY(
      parse_fields(text, "record", [&](FieldReader& fields) { fields.field("counters", sets); }));
  return sets;
}

TEST(CountersTest, WhatWasWrittenIsRead) {
  const Result<std::vector<CounterSet>> back = read(text_of(sample_sets()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, sample_sets());
}

TEST(CountersTest, AValueThatIsMissingIsNullWithItsReason) {
  const std::string text = text_of(sample_sets());
  EXPECT_THAT(text, HasSubstr(R"("dram__throughput.avg.pct_of_peak_sustained_elapsed":null)"));
  EXPECT_THAT(text, HasSubstr(R"("lts__t_sector_hit_rate.pct":"beyond 100")"));
  EXPECT_THAT(text, HasSubstr(R"("source":"cupti","version":"13.0","mode":"kernel_replay",)"
                              R"("cache":"cold","passes":4,"time_us":5.2168)"));
}

TEST(CountersTest, WhatIsNoneOfTheValuesIsNamed) {
  std::string text = text_of(sample_sets());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    const auto back = read(other);
    return back ? "no error" : back.error().message;
  };
  EXPECT_EQ(replaced(R"("cupti")", R"("perf")"),
            "record: counters[0].source: \"perf\" is none of cupti, ncu");
  EXPECT_EQ(replaced("[132,2,1]", "[132,2]"),
            "record: counters[0].kernels[0].grid: three numbers above 0 expected");
  EXPECT_THAT(replaced("5216.5", R"("fast")"), HasSubstr("gpu__time_duration.sum"));
}

}  // namespace
}  // namespace kernwright
