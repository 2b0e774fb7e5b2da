#include "bench/simulation/logged_trials.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "model/result/trial.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tuner/search/trial_log.h"

namespace kernwright {
namespace {

constexpr const char* kSession =
    R"({"session": {"problem": "matmul m=1", "sku": "h200", "policy": "l2=cold"}})";

std::string trial(const char* configuration, const char* rest) {
  return concat(R"({"template": "t", "configuration": )", configuration, ", ", rest, "}");
}

std::string defect(const std::string& lines) {
  const auto space = read_logged_trials(lines, "log.jsonl");
  if (space) return "none";
  EXPECT_EQ(space.error().code, ErrorCode::corrupt);
  return space.error().message;
}

TEST(LoggedTrials, ReadsWhatATrialLogWrites) {
  const ScopedTempDir directory;
  const std::filesystem::path path = directory.path() / "few.jsonl";
  TrialLog log(path);
  RecordKey key;
  key.problem = "matmul m=1 n=2";
  key.sku = "h200";
  ASSERT_TRUE(log.begin(key, {}));
  Trial slow;
  slow.choice = {"matmul/a", Configuration({{"BM", 64}, {"GROUP", 4}})};
  slow.outcome = Outcome::ok;
  slow.measurement.samples_us = {5, 3};
  slow.resources.registers = 40;
  slow.predicted_us = 6;
  slow.compile_seconds = 0.5;
  Trial failed;
  failed.choice = {"matmul/b", Configuration({{"W", 2}})};
  failed.outcome = Outcome::wrong_result;
  Trial again = slow;
  again.measurement.samples_us = {7, 1, 2};
  for (const Trial& one : {slow, failed, again}) ASSERT_TRUE(log.append(one));

  const auto space = must(read_recorded_space(path));
  EXPECT_EQ(space.name, "few");
  EXPECT_EQ(space.device, "h200");
  EXPECT_EQ(space.kernel, "matmul");
  EXPECT_EQ(space.problem, "matmul m=1 n=2");
  EXPECT_EQ(space.policy, key.policy.text());
  EXPECT_EQ(space.templates, (std::vector<std::string>{"matmul/a", "matmul/b"}));
  EXPECT_EQ(space.default_index, 0U);
  const auto& all = space.configurations;
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].configuration, slow.choice.configuration);
  EXPECT_EQ(all[0].samples_us, slow.measurement.samples_us);
  EXPECT_EQ(all[0].truth_us, 4);
  EXPECT_EQ(all[0].final_us, 2) << "a later line has the finals' samples";
  EXPECT_EQ(all[0].registers, 40);
  EXPECT_EQ(all[0].predicted_us, 6);
  EXPECT_EQ(all[0].compile_seconds, 0.5);
  EXPECT_EQ(all[1].kernel_template, 1);
  EXPECT_EQ(all[1].outcome, Outcome::wrong_result);
  EXPECT_EQ(all[1].truth_us, 0);
  EXPECT_EQ(all[1].final_us, 0);
  EXPECT_EQ(space.best_us(), 4);
}

TEST(LoggedTrials, TakesTheLastSession) {
  const std::string first = trial(R"({"A": 1})", R"("outcome": "ok", "samples_us": [1])");
  const std::string last = trial(R"({"A": 2})", R"("outcome": "ok", "samples_us": [3, 5])");
  const auto space = must(read_logged_trials(
      concat(kSession, "\n", first, "\n", kSession, "\n", last, "\n"), "a/log.jsonl.gz"));
  EXPECT_EQ(space.name, "log");
  ASSERT_EQ(space.configurations.size(), 1U);
  EXPECT_EQ(space.best_us(), 4);
}

TEST(LoggedTrials, AFailureInTheFinalsSupersedes) {
  const char* point = R"({"A": 1})";
  const std::string lines =
      concat(kSession, "\n", trial(point, R"("outcome": "ok", "samples_us": [1])"), "\n",
             trial(R"({"A": 2})", R"("outcome": "ok", "samples_us": [9])"), "\n",
             trial(point, R"("outcome": "nondeterministic", "samples_us": [1])"), "\n");
  EXPECT_EQ(read_logged_trials(lines, "log.jsonl")->best_us(), 9);
}

TEST(LoggedTrials, NamesFileLineAndDefect) {
  const std::string start = concat(kSession, "\n");
  const auto one = [&](const char* rest) { return defect(start + trial(R"({"A": 1})", rest)); };
  EXPECT_EQ(defect(start + "{"), "log.jsonl:2: no JSON object");
  EXPECT_EQ(defect(trial("{}", R"("outcome": "ok")")), "log.jsonl:1: a trial before any session");
  EXPECT_EQ(defect(R"({"session": {"problem": "matmul m=1", "policy": ""}})"),
            "log.jsonl:1: the session has no text \"sku\"");
  EXPECT_EQ(defect(start + R"({"configuration": {}})"),
            "log.jsonl:2: the trial has no text \"template\"");
  EXPECT_EQ(defect(start + R"({"template": "t"})"),
            "log.jsonl:2: the trial has no object \"configuration\"");
  EXPECT_EQ(defect(start + trial(R"({"A": "x"})", R"("outcome": "ok")")), "log.jsonl:2: A = \"x\"");
  EXPECT_EQ(one(R"("outcome": "lost")"), "log.jsonl:2: the trial has no known \"outcome\"");
  EXPECT_EQ(one(R"("outcome": "ok")"), "log.jsonl:2: ok, but without samples");
  EXPECT_EQ(one(R"("outcome": "ok", "samples_us": 1)"),
            "log.jsonl:2: \"samples_us\" is no list of numbers");
  EXPECT_EQ(one(R"("outcome": "ok", "samples_us": [-1])"), "log.jsonl:2: \"samples_us\" holds -1");
  EXPECT_EQ(one(R"("outcome": "ok", "samples_us": [0])"), "log.jsonl:2: takes 0 us");
  EXPECT_EQ(one(R"("outcome": "timed_out")"), "log.jsonl:2: no trial is ok");
}

TEST(LoggedTrials, AreToldFromLandscapesByTheirFirstLine) {
  EXPECT_TRUE(is_trial_log(concat(kSession, "\n{")));
  EXPECT_FALSE(is_trial_log(R"({"space": "session"})"));
  EXPECT_FALSE(is_trial_log("{"));
  EXPECT_FALSE(is_trial_log(""));
}

}  // namespace
}  // namespace kernwright
