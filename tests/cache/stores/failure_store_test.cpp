#include "cache/stores/failure_store.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tests/cache/child_process.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

Failure sample_failure() {
  return {.problem = "toy n=4096 dtype=fp32",
          .choice = {"toy/plain", Configuration({{"A", 3}, {"B", 1}})},
          .scope = {"h200", "sm_90", "580.1", "nvrtc 13.0 ab", "digest of toy/plain"},
          .outcome = Outcome::illegal_address,
          .detail = "an illegal memory access",
          .time = "2026-01-02T03:04:05Z"};
}

class FailureStoreTest : public ::testing::Test {
 protected:
  std::vector<Failure> active(const FailureScope& now = sample_failure().scope,
                              std::string_view problem = "toy n=4096 dtype=fp32") const {
    return store_.active(problem, now, [this](std::string_view kernel_template) {
      return digest_prefix_ + std::string(kernel_template);
    });
  }
  std::filesystem::path file() const { return directory_ / "v1/failures/toy.jsonl"; }

  ScopedTempDir directory_;
  FailureStore store_{directory_.path()};
  std::string digest_prefix_ = "digest of ";
};

TEST_F(FailureStoreTest, WhatWasPutIsActive) {
  EXPECT_TRUE(active().empty());
  ASSERT_TRUE(store_.put(sample_failure()));
  EXPECT_EQ(active(), std::vector{sample_failure()});
  EXPECT_EQ(active().front().choice.id(), "toy/plain A=3 B=1");
  EXPECT_TRUE(active(sample_failure().scope, "toy n=8 dtype=fp32").empty());
}

TEST_F(FailureStoreTest, AnyOtherFieldOfTheScopeEndsIt) {
  ASSERT_TRUE(store_.put(sample_failure()));
  for (std::string FailureScope::* field : {&FailureScope::sku, &FailureScope::target,
                                            &FailureScope::driver, &FailureScope::compiler}) {
    FailureScope now = sample_failure().scope;
    now.*field = "other";
    EXPECT_TRUE(active(now).empty());
  }
  digest_prefix_ = "digest of a later ";
  EXPECT_TRUE(active().empty());
  digest_prefix_ = "digest of ";
  EXPECT_EQ(active().size(), 1U);
}

TEST_F(FailureStoreTest, OnlyWhatSaysSomethingOfTheCandidateLasts) {
  for (const Outcome outcome :
       {Outcome::illegal_address, Outcome::timed_out, Outcome::worker_died}) {
    EXPECT_EQ(lasting_severity(outcome), FailureSeverity::fatal);
  }
  EXPECT_EQ(lasting_severity(Outcome::out_of_bounds), FailureSeverity::unsafe);
  EXPECT_EQ(lasting_severity(Outcome::wrong_result), FailureSeverity::unsafe);
  for (const Outcome outcome : {Outcome::ok, Outcome::compile_failed, Outcome::out_of_memory,
                                Outcome::device_lost, Outcome::launch_failed}) {
    Failure failure = sample_failure();
    failure.outcome = outcome;
    EXPECT_FALSE(store_.put(failure)) << to_string(outcome);
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(FailureStoreTest, TheLatestOfACandidateCounts) {
  ASSERT_TRUE(store_.put(sample_failure()));
  Failure later = sample_failure();
  later.outcome = Outcome::timed_out;
  Failure other = sample_failure();
  other.choice.configuration = Configuration({{"A", 4}, {"B", 1}});
  ASSERT_TRUE(store_.put(other));
  ASSERT_TRUE(store_.put(later));
  EXPECT_EQ(active(), (std::vector{other, later}));
}

TEST_F(FailureStoreTest, LinesThatCannotBeReadAreSkipped) {
  ASSERT_TRUE(store_.put(sample_failure()));
  const std::string line = read_file(file()).value();
  std::string unknown = line;
  unknown.replace(unknown.find("illegal_address"), 15, "not_an_outcome!");
  ASSERT_TRUE(publish_file(file(), "\xff\n{}\n[]\n\n" + unknown + line + line.substr(0, 40)));
  EXPECT_EQ(active(), std::vector{sample_failure()});
}

TEST_F(FailureStoreTest, ProcessesAppendBesideEachOther) {
  constexpr int kProcesses = 4;
  constexpr int kFailures = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(start_child([&] {
      for (int i = 0; i < kFailures; ++i) {
        Failure failure = sample_failure();
        failure.choice.configuration = Configuration({{"A", process}, {"B", i}});
        if (!store_.put(failure)) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(active().size(), static_cast<std::size_t>(kProcesses * kFailures));
}

TEST_F(FailureStoreTest, ErrorsNameTheProblem) {
  Failure failure = sample_failure();
  failure.problem = "../../etc n=1";
  EXPECT_FALSE(store_.put(failure));
  EXPECT_TRUE(active(failure.scope, failure.problem).empty());
}

}  // namespace
}  // namespace kernwright
