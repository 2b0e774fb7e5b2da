#include "cache/records/record.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <set>
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
  EXPECT_EQ(back->winner.choice.kernel_template, record.winner.choice.kernel_template);
  EXPECT_EQ(back->winner.choice.configuration, record.winner.choice.configuration);
  EXPECT_EQ(back->winner.artifact, record.winner.artifact);
  EXPECT_EQ(back->winner.measurement.samples_us, record.winner.measurement.samples_us);
  EXPECT_EQ(back->winner.predicted_us, record.winner.predicted_us);
  EXPECT_EQ(back->winner.traits.resources, record.winner.traits.resources);
  ASSERT_EQ(back->runners_up.size(), 2U);
  EXPECT_EQ(back->runners_up[0].choice.configuration.text(), "BM=64");
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

TEST(RecordTest, TimesInTurnAndAloneAreTold) {
  RankedConfiguration ranked;
  ranked.measurement = {.samples_us = {10, 11, 20, 21, 22}, .sm_mhz = {5, 6, 1, 2, 3}};
  FinalRounds rounds;
  rounds.block_rounds = 3;
  EXPECT_EQ(final_times(ranked, rounds).in_turn.samples_us.size(), 5U) << "it was in no block";
  ranked.in_blocks = true;
  const auto [in_turn, alone] = final_times(ranked, rounds);
  EXPECT_EQ(in_turn.samples_us, (std::vector<double>{10, 11}));
  EXPECT_EQ(alone.samples_us, (std::vector<double>{20, 21, 22}));
  EXPECT_EQ(in_turn.sm_mhz, (std::vector<double>{5, 6}));
  EXPECT_EQ(alone.sm_mhz, (std::vector<double>{1, 2, 3}));
}

TEST(RecordTest, EveryPolicyIsRead) {
  for (const L2State l2 : {L2State::cold, L2State::warm, L2State::mixed}) {
    TuningRecord record = sample_record(1);
    record.key.policy = {l2};
    const Result<TuningRecord> back = parse_record(to_json(record));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->key, record.key);
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

TEST(RecordTest, LaunchPathsThatWereNotMeasuredAreNone) {
  TuningRecord record = sample_record(1);
  record.launch_paths = {};
  const std::string json = to_json(record);
  EXPECT_THAT(json, HasSubstr(R"("launch_paths":[],"best_path":null)"));
  const Result<TuningRecord> back = parse_record(json);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->launch_paths, LaunchTimes{});
}

TEST(RecordTest, EveryFieldOfTheKeyMakesAnotherText) {
  const RecordKey key = sample_key(1);
  EXPECT_EQ(key.text(),
            "matmul m=1 n=6144 k=4096 dtype=bf16; target=sm_90 sku=h200 " + key.policy.text());
  RecordKey other = key;
  other.problem += '0';
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

/// The fields that a record of version 0.1 does not have, by the object that has them now.
const std::map<std::string, std::set<std::string>> kNewer = {
    {"",
     {"trust", "audit", "verdict", "rounds", "launch_paths", "best_path", "search", "settle_ms",
      "idle_seconds", "longest_idle_ms", "counters"}},
    {"/counters/0", {"time_us"}},
    {"ranked",
     {"sm_mhz", "smem_bytes", "workspace_bytes", "launch_gap_us", "slowdown", "is_default",
      "is_predicted", "is_incumbent", "tied", "deterministic", "warned", "in_blocks"}},
    {"/check", {"exact", "guarded", "unmapped", "repeats", "deterministic", "after_timing"}}};

bool is_newer(const std::string& path, const std::string& field) {
  const bool ranked = path == "/winner" || path == "/baseline" || path.starts_with("/runners_up/");
  const auto found = kNewer.find(ranked && path.find("slowdown") == path.npos ? "ranked" : path);
  return found != kNewer.end() && found->second.contains(field);
}

TEST(RecordTest, EvidenceComesBack) {
  const TuningRecord record = sample_record(1);
  const Result<TuningRecord> back = parse_record(to_json(record));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->trust, Trust::b);
  EXPECT_EQ(back->audit, record.audit);
  EXPECT_EQ(back->verdict, Verdict::tie);
  EXPECT_EQ(back->rounds, record.rounds);
  EXPECT_EQ(back->launch_paths, record.launch_paths);
  EXPECT_EQ(back->counters, record.counters);
  EXPECT_EQ(back->search.random_seed, record.search.random_seed);
  EXPECT_EQ(back->search.regret_estimate, 0.02);
  EXPECT_EQ(back->settle_ms, 412.5);
  EXPECT_EQ(back->idle_seconds, 1.25);
  EXPECT_EQ(back->longest_idle_ms, 17.5);
  EXPECT_EQ(back->winner.measurement.sm_mhz, record.winner.measurement.sm_mhz);
  EXPECT_EQ(back->winner.traits.smem_bytes, record.winner.traits.smem_bytes);
  EXPECT_EQ(back->winner.launch_gap_us, record.winner.launch_gap_us);
  EXPECT_FALSE(back->winner.traits.deterministic);
  EXPECT_TRUE(back->winner.traits.is_incumbent && back->winner.tied && back->winner.traits.warned &&
              back->winner.in_blocks);
  EXPECT_EQ(back->runners_up[0].slowdown, record.runners_up[0].slowdown);
  EXPECT_TRUE(back->runners_up[0].traits.is_default);
  EXPECT_EQ(back->check.repeats, 50);
  EXPECT_TRUE(back->check.exact && back->check.guarded && back->check.unmapped &&
              back->check.after_timing);
}

TEST(RecordTest, ARecordOfVersionOneHasTheLeastTrust) {
  ordered_json json = ordered_json::parse(to_json(sample_record(1)));
  for (const char* path :
       {"", "/winner", "/runners_up/0", "/runners_up/1", "/baseline", "/check"}) {
    ordered_json& object = json[ordered_json::json_pointer(path)];
    const ordered_json before = object;
    for (const auto& item : before.items()) {
      if (is_newer(path, item.key())) object.erase(item.key());
    }
  }
  const Result<TuningRecord> back = parse_record(json.dump());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->trust, Trust::c);
  EXPECT_EQ(back->verdict, Verdict::unresolved);
  EXPECT_TRUE(back->audit.rows.empty());
  EXPECT_TRUE(back->winner.measurement.sm_mhz.empty());
  EXPECT_TRUE(back->winner.traits.deterministic);
  EXPECT_EQ(back->launch_paths, LaunchTimes{});
  EXPECT_TRUE(back->counters.empty());
  EXPECT_EQ(back->winner.measurement.samples_us, sample_record(1).winner.measurement.samples_us);
}

TEST(RecordTest, ATypicalRecordIsSmall) {
  TuningRecord record = sample_record(1);
  const auto measured = [](int rounds) {
    Measurement measurement;
    for (int i = 0; i < rounds; ++i) {
      measurement.samples_us.push_back((71234.0 + i) / 100);  // five digits
      measurement.sm_mhz.push_back(1755 - i % 8 * 15);
    }
    return measurement;
  };
  record.winner.measurement = measured(64);
  record.runners_up.assign(7, record.winner);
  record.baseline = record.winner;
  record.rounds.sm_probe_us = measured(64).samples_us;
  record.rounds.dram_probe_us = measured(64).samples_us;
  EXPECT_LT(to_json(record).size(), 20'000U);
  for (RankedConfiguration& ranked : record.runners_up) ranked.measurement = measured(256);
  EXPECT_LT(to_json(record).size(), 40'000U);  // the most there can be
}

TEST(RecordTest, EveryMissingFieldIsNamed) {
  const ordered_json whole = ordered_json::parse(to_json(sample_record(1)));
  int checked = 0;
  // Every object of the record, by its path in the error.
  for (const char* path :
       {"", "/key", "/environment", "/winner", "/winner/resources", "/runners_up/1", "/baseline",
        "/baseline/resources", "/check", "/rounds", "/search", "/winner/slowdown", "/audit/0",
        "/launch_paths/0", "/counters/0", "/counters/0/kernels/0"}) {
    const ordered_json::json_pointer pointer(path);
    for (const auto& item : whole[pointer].items()) {
      if (item.key() == "baseline" || is_newer(path, item.key())) continue;
      ordered_json json = whole;
      json[pointer].erase(item.key());
      const Result<TuningRecord> record = parse_record(json.dump());
      ASSERT_FALSE(record) << path << '/' << item.key();
      EXPECT_EQ(record.error().code, ErrorCode::corrupt);
      EXPECT_THAT(record.error().message, HasSubstr(item.key() + ": missing")) << path;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 13 + 4 + 4 + 6 + 6 + 6 + 6 + 6 + 4 + 4 + 9 + 3 + 3 + 3 + 8 + 4);
}

TEST(RecordTest, EveryFieldOfAnotherTypeIsRefused) {
  const ordered_json whole = ordered_json::parse(to_json(sample_record(1)));
  const auto flat = whole.flatten();
  for (const auto& item : flat.items()) {
    ordered_json json = whole;
    ordered_json& field = json[ordered_json::json_pointer(item.key())];
    field = field.is_boolean() ? ordered_json("yes") : ordered_json(true);
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
  EXPECT_EQ(error_after([](ordered_json& json) { json["audit"][0]["trust"] = "D"; }),
            "record: audit[0].trust: \"D\" is none of its values");
  EXPECT_EQ(error_after([](ordered_json& json) { json["launch_paths"][1]["path"] = "teletype"; }),
            "record: launch_paths[1].path: \"teletype\" is no launch path");
  EXPECT_EQ(error_after([](ordered_json& json) { json["best_path"] = "teletype"; }),
            "record: best_path: \"teletype\" is no launch path");
  EXPECT_EQ(error_after([](ordered_json& json) { json["rounds"]["dropped"][1] = 1e30; }),
            "record: rounds.dropped[1]: a 32-bit integer expected, not 1e+30");
  EXPECT_EQ(error_after([](ordered_json& json) { json["search"]["seed"] = -1; }),
            "record: search.seed: an unsigned 64-bit integer expected, not -1");
  EXPECT_EQ(error_after([](ordered_json& json) { json["settle_ms"] = nullptr; }),
            "record: settle_ms: a number expected, not null");
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
