#include "cache/record.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cache/samples.h"

namespace kernwright {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

/// The error of the sample with `edit(json)` applied to it.
template <typename Edit>
std::string error_after(const Edit& edit) {
  ordered_json json = ordered_json::parse(to_json(sample_record(1)));
  edit(json);
  const Result<TuningRecord> record = parse_record(json.dump());
  return record ? "no error" : record.error().message;
}

TEST(RecordTest, WhatWasWrittenIsRead) {
  const TuningRecord record = sample_record(4096);
  const Result<TuningRecord> back = parse_record(to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->key, record.key);
  EXPECT_EQ(back->environment, record.environment);
  EXPECT_EQ(back->grade, record.grade);
  EXPECT_EQ(back->winner.kernel_template, record.winner.kernel_template);
  EXPECT_EQ(back->winner.configuration, record.winner.configuration);
  EXPECT_EQ(back->winner.artifact, record.winner.artifact);
  EXPECT_EQ(back->winner.measurement.samples_us, record.winner.measurement.samples_us);
  EXPECT_EQ(back->winner.predicted_us, record.winner.predicted_us);
  EXPECT_EQ(back->winner.resources, record.winner.resources);
  ASSERT_EQ(back->runners_up.size(), 2U);
  EXPECT_EQ(back->runners_up[0].configuration.text(), "BM=64");
  ASSERT_TRUE(back->baseline);
  EXPECT_EQ(back->baseline->artifact, record.baseline->artifact);
  EXPECT_EQ(back->check.max_error, record.check.max_error);
  EXPECT_EQ(back->check.elements, record.check.elements);
  EXPECT_EQ(back->device_name, record.device_name);
  // The text is a function of the record, so all the rest is equal too.
  EXPECT_EQ(to_json(*back), to_json(record));
}

TEST(RecordTest, TheTextIsOneLineInStableOrder) {
  const std::string text = to_json(sample_record(1));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("{\"key\":{\"problem\":\"matmul m=1 n=6144 k=4096 dtype=bf16\",\"target\""),
            0U);
  EXPECT_THAT(text, HasSubstr(R"("configuration":{"STAGES":4,"BM":128,"GROUP":-8})"));
}

TEST(RecordTest, DoublesComeBackBitByBit) {
  std::mt19937_64 random(20261120);
  TuningRecord record = sample_record(1);
  std::vector<double>& samples = record.winner.measurement.samples_us;
  samples = {0.0, -0.0, std::numeric_limits<double>::min(),
             std::numeric_limits<double>::denorm_min()};
  while (samples.size() < 20000) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) samples.push_back(value);
  }
  const Result<TuningRecord> back = parse_record(to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  const std::vector<double>& read = back->winner.measurement.samples_us;
  ASSERT_EQ(read.size(), samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(read[i]), std::bit_cast<std::uint64_t>(samples[i])) << i;
  }
}

TEST(RecordTest, TheDecisionCanBeRecomputed) {
  TuningRecord record = sample_record(1);
  record.winner.measurement.samples_us = {10.2, 10.1, 10.3};
  record.runners_up.resize(1);
  record.runners_up[0].measurement.samples_us = {10.9, 11.0, 10.8};
  record.baseline->measurement.samples_us = {12.0, 12.5, 12.1};
  const Result<TuningRecord> back = parse_record(to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->winner.measurement.median_us(), 10.2);
  EXPECT_EQ(back->runners_up[0].measurement.median_us(), 10.9);
  EXPECT_EQ(back->baseline->measurement.median_us(), 12.1);
  EXPECT_EQ(back->winner.measurement.mad_us(), record.winner.measurement.mad_us());
}

TEST(RecordTest, EveryPolicyIsRead) {
  for (const L2State l2 : {L2State::cold, L2State::warm, L2State::mixed}) {
    for (const LaunchMode launch : {LaunchMode::graph, LaunchMode::stream}) {
      for (const PowerMode power : {PowerMode::sustained, PowerMode::burst}) {
        TuningRecord record = sample_record(1);
        record.key.policy = {l2, launch, power};
        const Result<TuningRecord> back = parse_record(to_json(record));
        ASSERT_TRUE(back) << back.error().message;
        EXPECT_EQ(back->key, record.key);
      }
    }
  }
}

TEST(RecordTest, APredictionHasNoBaselineAndNoSamples) {
  TuningRecord record = sample_record(1);
  record.grade = RecordGrade::predicted;
  record.baseline.reset();
  record.runners_up.clear();
  record.winner.measurement.samples_us.clear();
  const Result<TuningRecord> back = parse_record(to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->grade, RecordGrade::predicted);
  EXPECT_FALSE(back->baseline);
  EXPECT_TRUE(back->runners_up.empty());
}

TEST(RecordTest, EveryFieldOfTheKeyMakesAnotherText) {
  const RecordKey key = sample_key(1);
  EXPECT_EQ(key.text(),
            "matmul m=1 n=6144 k=4096 dtype=bf16; target=sm_90 sku=h200 " + key.policy.text());
  RecordKey other = key;
  other.problem += "0";
  EXPECT_NE(other.text(), key.text());
  other = key;
  other.target = "sm_80";
  EXPECT_NE(other.text(), key.text());
  other = key;
  other.sku = "h100_sxm";
  EXPECT_NE(other.text(), key.text());
  other = key;
  other.policy.l2 = L2State::warm;
  EXPECT_NE(other.text(), key.text());
}

TEST(RecordTest, UnknownFieldsAreIgnored) {
  EXPECT_EQ(error_after([](ordered_json& json) {
              json["clocks"] = {{"sm", 1980}};
              json["winner"]["note"] = "from a later version";
              json["runners_up"][0]["energy"] = 1.5;
            }),
            "no error");
}

TEST(RecordTest, EveryMissingFieldIsNamed) {
  const ordered_json whole = ordered_json::parse(to_json(sample_record(1)));
  int checked = 0;
  // Every object of the record, by its path in the error.
  for (const char* path : {"", "/key", "/environment", "/winner", "/winner/resources",
                           "/runners_up/1", "/baseline", "/baseline/resources", "/check"}) {
    const ordered_json::json_pointer pointer(path);
    for (const auto& item : whole[pointer].items()) {
      if (item.key() == "baseline") continue;
      ordered_json json = whole;
      json[pointer].erase(item.key());
      const Result<TuningRecord> record = parse_record(json.dump());
      ASSERT_FALSE(record) << path << '/' << item.key();
      EXPECT_EQ(record.error().code, ErrorCode::corrupt);
      EXPECT_THAT(record.error().message, HasSubstr(item.key() + ": missing")) << path;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 13 + 4 + 4 + 6 + 6 + 6 + 6 + 6 + 4);
}

TEST(RecordTest, EveryFieldOfAnotherTypeIsRefused) {
  const ordered_json whole = ordered_json::parse(to_json(sample_record(1)));
  const auto flat = whole.flatten();
  for (const auto& item : flat.items()) {
    ordered_json json = whole;
    json[ordered_json::json_pointer(item.key())] = true;
    EXPECT_FALSE(parse_record(json.dump())) << item.key();
  }
}

TEST(RecordTest, ErrorsNameTheFieldByItsPath) {
  EXPECT_EQ(error_after([](ordered_json& json) { json["winner"]["resources"]["barriers"] = "3"; }),
            "record: winner.resources.barriers: a 64-bit integer expected, not string");
  EXPECT_EQ(error_after([](ordered_json& json) { json["candidates"] = 3000000000; }),
            "record: candidates: 3000000000 is no 32-bit integer");
  EXPECT_EQ(error_after([](ordered_json& json) { json["check"]["elements"] = 1e30; }),
            "record: check.elements: a 64-bit integer expected, not 1e+30");
  EXPECT_EQ(error_after([](ordered_json& json) { json["runners_up"][1] = 5; }),
            "record: runners_up[1]: object expected, not 5");
  EXPECT_EQ(error_after([](ordered_json& json) { json["winner"]["samples_us"][2] = nullptr; }),
            "record: winner.samples_us[2]: a number expected, not null");
  EXPECT_EQ(error_after([](ordered_json& json) { json["grade"] = "guessed"; }),
            "record: grade: \"guessed\" is neither measured nor predicted");
  EXPECT_EQ(error_after([](ordered_json& json) { json["key"]["policy"] = "l2=hot"; }),
            "record: key.policy: \"l2=hot\" is no measure policy");
}

TEST(RecordTest, WhatIsNoObjectIsRefused) {
  for (const char* text : {"", "null", "[]", "{", "{\"key\":", "3", "{} {}", "\xff"}) {
    const Result<TuningRecord> record = parse_record(text);
    ASSERT_FALSE(record) << text;
    EXPECT_EQ(record.error().code, ErrorCode::corrupt);
  }
  EXPECT_FALSE(parse_record(std::string(1 << 20, '[')));
}

}  // namespace
}  // namespace kernwright
