// Families: sizes of a range that was tuned as one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/stores/record_store.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class FamilyCoreTest : public ServiceCoreTest {
 protected:
  FamilyCoreTest() { shortlists_ = true; }

  /// Tunes with seconds that pass on the fake device alone.
  TunedFamily tune(ServiceCore& core, double seconds = 12,
                   std::function<void(const FamilyProgress&)> progress = {}) {
    FamilyOptions options;
    options.seconds = seconds;
    options.progress = std::move(progress);
    options.clock_seconds = [this] { return world_.clock.now_us() / 1e6; };
    return must(core.tune_family(must(Problem::parse(kText)), std::move(options)));
  }
  /// Returns sizes of the range without a record of their own.
  std::vector<std::int64_t> other_sizes() const {
    std::vector<std::int64_t> sizes;
    for (const std::int64_t n : {3, 17, 301, 1'033, 2'111, 3'991}) {
      if (RecordStore(cache_.path()).get(sample(n)).runs.empty()) sizes.push_back(n);
    }
    return sizes;
  }
  static RecordKey sample(std::int64_t n) {
    return {vector_add(n, DType::bf16).text(), "sm_90", "h200", {}};
  }

  static constexpr const char* kText = "vector_add n=2..4096 dtype=bf16";
};

TEST_F(FamilyCoreTest, WithoutABudgetARangeHasThatOfRanges) {
  const auto core = open();
  EXPECT_EQ(core->tune_seconds(problem_), tune_seconds_);
  EXPECT_EQ(core->tune_seconds(must(Problem::parse(kText))), 90);
}

TEST_F(FamilyCoreTest, TheRecordHasKernelsATableAndItsEvidence) {
  const auto core = open();
  const TunedFamily tuned = tune(*core, 50);
  EXPECT_EQ(tuned.unstored, "");
  const FamilyRecord& record = tuned.record;
  EXPECT_EQ(record.head.key.problem, kText);
  EXPECT_FALSE(record.head.kernels.empty());
  EXPECT_LE(record.head.kernels.size(), DispatchTable::kMostChoices);
  EXPECT_GE(record.matrix.size(), 4U);
  EXPECT_GT(record.head.regret.sizes, 0);
  EXPECT_LE(record.head.regret.median, record.head.regret.p95);
  EXPECT_LE(record.head.regret.p95, record.head.regret.worst);
  for (const FamilyRow& row : record.validation) {
    EXPECT_TRUE(std::ranges::none_of(record.matrix, [&](const FamilyRow& other) {
      return other.sizes == row.sizes;
    })) << "validated where the table was made";
  }
  for (const FamilyKernel& kernel : record.head.kernels) {
    EXPECT_TRUE(core->cache().artifact(kernel.artifact)) << kernel.choice.id();
  }
  EXPECT_EQ(*read_family(tuned.file).value, record);
}

TEST_F(FamilyCoreTest, KernelsThatTheLastValidationFindsWrongAreNotInTheRecord) {
  const auto threads_of = [](const Choice& choice) { return choice.configuration.at("THREADS"); };
  const std::int64_t wrong = threads_of(tune(*open()).record.head.kernels[0].choice);
  bool validating = false;
  world_.outcome = [&](const ExecutionPlan& plan) {
    const bool is_wrong = validating && plan.launches[0].block[0] == wrong;
    return is_wrong ? Outcome::wrong_result : Outcome::ok;
  };
  const TunedFamily tuned = tune(*open(), 12, [&](const FamilyProgress& progress) {
    validating = validating || progress.stage == "validating";
  });
  ASSERT_TRUE(validating);
  EXPECT_FALSE(tuned.record.head.kernels.empty());
  for (const FamilyKernel& kernel : tuned.record.head.kernels) {
    EXPECT_NE(threads_of(kernel.choice), wrong) << kernel.choice.id();
  }
}

TEST_F(FamilyCoreTest, ASizeOfTheRangeIsServedInAnotherProcessWithoutACompile) {
  tune(*open());
  min_match_ = Match::recheck;
  const auto core = open();
  world_.compiles = 0;
  const std::vector<std::int64_t> sizes = other_sizes();
  ASSERT_GE(sizes.size(), 3U);
  for (const std::int64_t n : sizes) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(kernel->match(), Match::family);
    EXPECT_EQ(kernel->arguments()[0].extent, std::vector<std::int64_t>{n});
    core->wait_for_shortlists();
  }
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_THAT(core->get_best_kernel(vector_add(5'000, DType::bf16)), Fails(ErrorCode::not_found));
}

TEST_F(FamilyCoreTest, LoadedOnceItServesEverySizeAfterTheSeal) {
  tune(*open());
  min_match_ = Match::family;
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(vector_add(1'500, DType::bf16)));
  core->wait_for_shortlists();
  core->seal(SealMode::error);
  world_.compiles = 0;
  const int loads = world_.loads;
  for (std::int64_t n = 1'400; n < 1'600; n += 7) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
  }
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(world_.loads, loads);
}

TEST_F(FamilyCoreTest, PrewarmedItLoadsNothingAfterTheSealNotEvenForSizesWithRecords) {
  tune(*open());
  min_match_ = Match::recheck;
  const auto core = open();
  must(core->prewarm_family(must(Problem::parse(kText))));
  core->seal(SealMode::error);
  world_.compiles = 0;
  const int loads = world_.loads;
  std::set<Match> matches;
  for (std::int64_t n = 2; n <= 4'096; n += n < 64 ? 1 : 31) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
    matches.insert(kernel->match());
  }
  EXPECT_EQ(matches, (std::set{Match::exact, Match::family}));
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(world_.loads, loads);
}

TEST_F(FamilyCoreTest, NothingIsPrewarmedOfARangeThatCannotBeServed) {
  min_match_ = Match::recheck;
  EXPECT_THAT(open()->prewarm_family(must(Problem::parse(kText))), Fails(ErrorCode::not_found));
}

TEST_F(FamilyCoreTest, AnExactMatchIsNotAFamilys) {
  tune(*open());
  min_match_ = Match::exact;
  const std::vector<std::int64_t> sizes = other_sizes();
  ASSERT_FALSE(sizes.empty());
  EXPECT_THAT(open()->get_best_kernel(vector_add(sizes[0], DType::bf16)),
              Fails(ErrorCode::not_found, HasSubstr("the best is family")));
}

TEST_F(FamilyCoreTest, AnotherDriverMakesItARecheck) {
  tune(*open());
  world_.driver_version = "581.0";
  const Result<Kernel> kernel = open()->get_best_kernel(vector_add(other_sizes()[0], DType::bf16));
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->match(), Match::recheck);
  EXPECT_EQ(kernel->summary().reason, MissReason::other_driver);
}

TEST_F(FamilyCoreTest, TheCoverageOfARangeIsThatOfItsWorstKernel) {
  const auto covered = [this](Match min_match) {
    min_match_ = min_match;
    const auto core = open();
    return core->coverage(must(core->site().bind_family(must(Problem::parse(kText)))));
  };
  EXPECT_EQ(covered(Match::none).match, Match::none);
  EXPECT_EQ(covered(Match::none).reason, MissReason::absent);
  const TunedFamily tuned = tune(*open());
  EXPECT_EQ(covered(Match::family).match, Match::family);
  EXPECT_EQ(covered(Match::family).reason, MissReason::none);
  world_.driver_version = "581.0";
  EXPECT_EQ(covered(Match::recheck).match, Match::recheck);
  EXPECT_EQ(covered(Match::family).match, Match::none);
  EXPECT_EQ(covered(Match::family).reason, MissReason::other_driver);
  for (const auto& file : std::filesystem::recursive_directory_iterator(cache_.path())) {
    if (file.path().filename() == tuned.record.head.kernels.back().artifact + ".kwa") {
      std::filesystem::remove(file.path());
      break;
    }
  }
  EXPECT_EQ(covered(Match::recheck).match, Match::none);
  EXPECT_EQ(covered(Match::recheck).reason, MissReason::artifact_missing);
}

TEST_F(FamilyCoreTest, TheTunedRangeIsServedAtOnceByTheServiceThatTunedIt) {
  const auto core = open();
  const std::int64_t asked = 1'033;
  ASSERT_TRUE(core->get_best_kernel(vector_add(asked, DType::bf16)));
  core->wait_for_shortlists();
  ASSERT_EQ(core->get_best_kernel(vector_add(1'034, DType::bf16))->match(), Match::predicted);
  tune(*core);
  core->wait_for_shortlists();
  EXPECT_EQ(core->get_best_kernel(vector_add(1'035, DType::bf16))->match(), Match::family);
}

TEST_F(FamilyCoreTest, APinAnswersForTheRangeAndABanForNoSizeOfIt) {
  const TunedFamily tuned = tune(*open());
  const Choice first = tuned.record.head.kernels[0].choice;
  const auto other = std::ranges::find_if(tuned.record.tried,
                                          [&](const Choice& choice) { return choice != first; });
  ASSERT_NE(other, tuned.record.tried.end());
  const auto decide = [&](OverrideAction action, const Choice& choice) {
    must(open()->cache().put_override(
        {.key = tuned.record.head.key, .action = action, .choice = choice}));
  };
  const auto served = [&] {
    return must(open()->get_best_kernel(vector_add(other_sizes()[0], DType::bf16))).summary();
  };
  decide(OverrideAction::pin, *other);
  EXPECT_EQ(served().configuration, other->configuration.text());
  min_match_ = Match::family;
  const auto sealed = open();
  must(sealed->prewarm_family(must(Problem::parse(kText))));
  sealed->seal(SealMode::error);
  EXPECT_EQ(must(sealed->get_best_kernel(vector_add(other_sizes()[1], DType::bf16)))
                .summary()
                .configuration,
            other->configuration.text());
  min_match_ = Match::predicted;
  decide(OverrideAction::lift, *other);
  for (const FamilyKernel& kernel : tuned.record.head.kernels) {
    decide(OverrideAction::ban, kernel.choice);
  }
  EXPECT_NE(served().match, Match::family);
}

TEST_F(FamilyCoreTest, ARangeOfADimThatKernelsAreMadeForIsRefused) {
  EXPECT_THAT(open()->tune_family(must(Problem::parse("matmul m=8 n=64..128 k=64 dtype=bf16")), {}),
              Fails(ErrorCode::invalid_argument, HasSubstr("n=64..128")));
}

}  // namespace
}  // namespace kernwright
