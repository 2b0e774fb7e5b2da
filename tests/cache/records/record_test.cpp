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

#include "cache/entries/entry_file.h"
#include "cache/records/record_head.h"
#include "cache/records/trial_table.h"
#include "model/files/embedded_files.h"
#include "tests/cache/samples.h"
#include "tests/results.h"

namespace kernwright {

/// The records and trials of tests/data/cache, embedded when this program is built.
std::span<const EmbeddedFile> embedded_records();

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
  const TuningRecord back = must(parse_record(to_json(record)));
  EXPECT_EQ(back, record);
}

TEST(RecordTest, RecordsAndTrialsOfAnEarlierCacheAreWrittenAsTheyWere) {
  int records = 0;
  int trials = 0;
  for (const EmbeddedFile& file : embedded_records()) {
    if (const Lookup<EntryFile> entry = decode_entry(file.content, "record")) {
      const Result<TuningRecord> record = parse_record(entry.value->body);
      ASSERT_TRUE(record) << file.path << ": " << record.error().message;
      EXPECT_EQ(to_json(*record), entry.value->body) << file.path;
      const Result<RecordHead> head = decode_head(entry.value->payload);
      ASSERT_TRUE(head) << file.path << ": " << head.error().message;
      EXPECT_EQ(encode_head(*head), entry.value->payload) << file.path;
      ++records;
    }
    if (const Lookup<EntryFile> entry = decode_entry(file.content, "trials")) {
      const Result<TrialTable> table = parse_trial_table(entry.value->payload);
      ASSERT_TRUE(table) << file.path << ": " << table.error().message;
      EXPECT_EQ(to_json(*table), entry.value->payload) << file.path;
      ++trials;
    }
  }
  EXPECT_EQ(records, 1);
  EXPECT_EQ(trials, 1);
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
  const TuningRecord back = must(parse_record(to_json(record)));
  const std::vector<double>& read = back.winner.measurement.samples_us;
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
  const TuningRecord back = must(parse_record(to_json(record)));
  EXPECT_EQ(back.winner.measurement.median_us(), 10.2);
  EXPECT_EQ(back.runners_up[0].measurement.median_us(), 10.9);
  EXPECT_EQ(back.baseline->measurement.median_us(), 12.1);
  EXPECT_EQ(back.winner.measurement.mad_us(), record.winner.measurement.mad_us());
}

TEST(RecordTest, EveryPolicyIsRead) {
  for (const L2State l2 : {L2State::cold, L2State::warm, L2State::mixed}) {
    TuningRecord record = sample_record(1);
    record.key.policy = {l2};
    const TuningRecord back = must(parse_record(to_json(record)));
    EXPECT_EQ(back.key, record.key);
  }
}

TEST(RecordTest, APredictionHasNoBaselineAndNoSamples) {
  TuningRecord record = sample_record(1);
  record.grade = RecordGrade::predicted;
  record.baseline.reset();
  record.runners_up.clear();
  record.winner.measurement.samples_us.clear();
  const TuningRecord back = must(parse_record(to_json(record)));
  EXPECT_EQ(back.grade, RecordGrade::predicted);
  EXPECT_FALSE(back.baseline);
  EXPECT_TRUE(back.runners_up.empty());
}

TEST(RecordTest, LaunchPathsThatWereNotMeasuredAreNone) {
  TuningRecord record = sample_record(1);
  record.launch_paths = {};
  const std::string json = to_json(record);
  EXPECT_THAT(json, HasSubstr(R"("launch_paths":[],"best_path":null)"));
  const TuningRecord back = must(parse_record(json));
  EXPECT_EQ(back.launch_paths, LaunchTimes{});
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
  const TuningRecord back = must(parse_record(json.dump()));
  EXPECT_EQ(back.trust, Trust::c);
  EXPECT_EQ(back.verdict, Verdict::unresolved);
  EXPECT_TRUE(back.audit.rows.empty());
  EXPECT_TRUE(back.winner.measurement.sm_mhz.empty());
  EXPECT_TRUE(back.winner.traits.deterministic);
  EXPECT_EQ(back.launch_paths, LaunchTimes{});
  EXPECT_TRUE(back.counters.empty());
  EXPECT_EQ(back.winner.measurement.samples_us, sample_record(1).winner.measurement.samples_us);
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
      EXPECT_THAT(parse_record(json.dump()),
                  Fails(ErrorCode::corrupt, HasSubstr(item.key() + ": missing")))
          << path << '/' << item.key();
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
            "record: grade: \"guessed\" is none of measured, predicted");
  EXPECT_EQ(error_after([](ordered_json& json) { json["key"]["policy"] = "l2=hot"; }),
            "record: key.policy: \"l2=hot\" is no measure policy");
  EXPECT_EQ(error_after([](ordered_json& json) { json["audit"][0]["trust"] = "D"; }),
            "record: audit[0].trust: \"D\" is none of A, B, C");
  EXPECT_EQ(error_after([](ordered_json& json) { json["launch_paths"][1]["path"] = "teletype"; }),
            "record: launch_paths[1].path: \"teletype\" is none of stream, graph, rebind");
  EXPECT_EQ(error_after([](ordered_json& json) { json["best_path"] = "teletype"; }),
            "record: best_path: \"teletype\" is none of stream, graph, rebind");
  EXPECT_EQ(error_after([](ordered_json& json) { json["rounds"]["dropped"][1] = 1e30; }),
            "record: rounds.dropped[1]: a 32-bit integer expected, not 1e+30");
  EXPECT_EQ(error_after([](ordered_json& json) { json["search"]["seed"] = -1; }),
            "record: search.seed: an unsigned 64-bit integer expected, not -1");
  EXPECT_EQ(error_after([](ordered_json& json) { json["settle_ms"] = nullptr; }),
            "record: settle_ms: a number expected, not null");
}

TEST(RecordTest, WhatIsNoObjectIsRefused) {
  for (const char* text : {"", "null", "[]", "{", "{\"key\":", "3", "{} {}", "\xff"}) {
    EXPECT_THAT(parse_record(text), Fails(ErrorCode::corrupt)) << text;
  }
  EXPECT_FALSE(parse_record(std::string(1 << 20, '[')));
}

}  // namespace
}  // namespace kernwright
