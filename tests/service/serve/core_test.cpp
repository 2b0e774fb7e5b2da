#include "service/serve/core.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"
#include "tests/child.h"
#include "tests/results.h"
#include "tests/service/core_fixture.h"
#include "tests/support/faulty_files.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// In a process of its own, which has no thread but this one.
TEST_F(ServiceCoreTest, ThereAreNoThreadsToCompileOnBeforeTheFirstCompile) {
  if (!forks_start_threads()) GTEST_SKIP() << kThreadsStarted;
  EXPECT_EQ(in_child([&] {
              if (threads() != 1) return 1;
              const auto core = open();
              if (threads() != 1) return 2;
              if (!core->get_best_kernel(problem_)) return 3;
              return threads() > 1 ? 0 : 4;
            }),
            0);
}

TEST_F(ServiceCoreTest, AForkedProcessFindsWhatIsInMemoryAndNothingElse) {
  auto core = open(MissPolicy::predict, "h200");
  ASSERT_TRUE(core->get_best_kernel(problem_));
  const Problem other = Problem::make("vector_add", {{"n", 8192}}, {{"dtype", "bf16"}});
  const auto is_refused = [](const Error& error) {
    return error.code == ErrorCode::unavailable &&
           error.message.find("was forked from process") != std::string::npos;
  };
  ServiceOptions sku;
  sku.sku = "h200";
  EXPECT_EQ(in_child([&] {
              if (!core->get_best_kernel(problem_)) return 1;
              const Result<Kernel> missed = core->get_best_kernel(other);
              if (missed || !is_refused(missed.error())) return 2;
              const auto opened = ServiceCore::open(sku, fake_surroundings(world_));
              if (opened || !is_refused(opened.error())) return 3;
              core.reset();  // waits for nothing
              return 0;
            }),
            0);
  EXPECT_TRUE(core->get_best_kernel(other)) << "the parent goes on";
}

TEST_F(ServiceCoreTest, AProcessForkedBeforeTheFirstCompileCompiles) {
  if (!forks_start_threads()) GTEST_SKIP() << kThreadsStarted;
  const auto core = open(MissPolicy::predict, "h200");
  EXPECT_EQ(in_child([&] { return core->get_best_kernel(problem_) ? 0 : 1; }), 0);
  EXPECT_TRUE(core->get_best_kernel(problem_));
}

TEST_F(ServiceCoreTest, AtALimitOfThreadsALookupIsAnsweredOrFailsWithTheLimit) {
  if (!forks_start_threads()) GTEST_SKIP() << kThreadsStarted;
  std::filesystem::permissions(cache_.path(), std::filesystem::perms::all);
  for (const rlim_t allowed : {1U, 2U, 3U, 4U, 8U}) {
    const int status = in_child([&] {
      if (!limit_threads(allowed)) return 77;
      for (const MissPolicy policy : {MissPolicy::predict, MissPolicy::tune_in_background}) {
        auto core = open(policy);
        if (!core) return 1;
        const Result<Kernel> kernel = core->get_best_kernel(problem_);
        if (kernel) continue;
        if (kernel.error().message.find("cannot start a thread") == std::string::npos) return 2;
        if (allowed > 2) return 3;  // one to compile on, one that watches it
      }
      return 0;
    });
    if (status == 77) GTEST_SKIP() << "this process cannot be limited";
    EXPECT_EQ(status, 0) << allowed;
  }
}

TEST_F(ServiceCoreTest, APredictionIsServedAtOnceAndSaysSo) {
  const auto core = open();
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::predicted);
  EXPECT_EQ(kernel.summary().reason, MissReason::absent);
  EXPECT_EQ(kernel.summary().problem, "vector_add n=4096 dtype=bf16");
  EXPECT_GT(kernel.summary().predicted_us, 0);
  EXPECT_EQ(kernel.summary().measured_us, 0);
  EXPECT_EQ(kernel.best_path(), std::nullopt);
}

TEST_F(ServiceCoreTest, ATunedWinnerIsServedHereAndInTheNextServiceWithoutAToolkit) {
  std::string winner;
  {
    const auto core = open();
    const auto tuned = must(core->tune(problem_, few_trials()));
    const Kernel kernel = must(core->get_best_kernel(problem_));
    EXPECT_EQ(kernel.match(), Match::exact);
    EXPECT_GT(kernel.summary().measured_us, 0);
    EXPECT_EQ(kernel.best_path(), KernelPath::graph);
    winner = kernel.summary().configuration;
    EXPECT_EQ(winner, tuned.record.winner.choice.configuration.text());
  }
  world_.toolkit_missing = true;
  world_.compiles = 0;
  world_.identities = 0;
  const auto next = open(MissPolicy::fail);
  const Kernel kernel = must(next->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::exact);
  EXPECT_EQ(kernel.summary().configuration, winner);
  EXPECT_EQ(kernel.best_path(), KernelPath::graph);
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(world_.identities, 0) << "the toolkit was asked for on a hit";
}

TEST_F(ServiceCoreTest, TheBestKernelsAreTheWinnerAndTheNextOfItsRecord) {
  std::vector<std::string> given;
  {
    const auto core = open();
    const auto tuned = must(core->tune(problem_, few_trials()));
    const std::vector<Kernel> kernels = must(core->get_best_kernels(problem_, 3));
    ASSERT_EQ(kernels.size(), 3U);
    EXPECT_EQ(&kernels[0].summary(), &core->get_best_kernel(problem_)->summary());
    std::set<std::string> runners_up;
    for (const RankedConfiguration& ranked : tuned.record.runners_up) {
      runners_up.insert(ranked.choice.configuration.text());
    }
    for (std::size_t i = 1; i < kernels.size(); ++i) {
      EXPECT_TRUE(runners_up.contains(kernels[i].summary().configuration));
      EXPECT_EQ(kernels[i].match(), Match::exact);
      EXPECT_GT(kernels[i].summary().measured_us, 0);
    }
    const std::vector<Kernel> more = must(core->get_best_kernels(problem_, 100));
    EXPECT_LE(more.size(), 1 + tuned.record.runners_up.size());
    ASSERT_GE(more.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(&more[i].summary(), &kernels[i].summary()) << "the same, not loaded again";
    }
    EXPECT_EQ(core->get_best_kernels(problem_, 0)->size(), 0U);
    for (const Kernel& kernel : more) given.push_back(kernel.summary().configuration);
    EXPECT_EQ(std::set<std::string>(given.begin(), given.end()).size(), given.size());
  }
  world_.toolkit_missing = true;
  const auto next = open(MissPolicy::fail);
  const std::vector<Kernel> kernels = must(next->get_best_kernels(problem_, 100));
  std::vector<std::string> again;
  for (const Kernel& kernel : kernels) again.push_back(kernel.summary().configuration);
  EXPECT_EQ(again, given) << "all from the cache";
}

TEST_F(ServiceCoreTest, AlternativesOfOneKernelDoNotWaitForCompilesOfAnother) {
  const Problem other = vector_add(4096, DType::fp32);
  {
    const auto core = open();
    for (const Problem& problem : {problem_, other}) {
      const auto tuned = must(core->tune(problem, few_trials()));
      for (const RankedConfiguration& ranked : tuned.record.runners_up) {
        if (ranked.artifact == tuned.record.winner.artifact) continue;
        std::filesystem::remove(core->cache().artifacts().path(ranked.artifact));
      }
    }
  }
  std::atomic<bool> first{true};
  std::promise<void> waits;
  std::promise<void> released;
  world_.compiling = [&] {
    if (!first.exchange(false)) return;
    waits.set_value();
    released.get_future().wait();
  };
  const auto core =
      *ServiceCore::open({.cache = cache_.path(), .compile_threads = 2}, fake_surroundings(world_));
  const auto best_two = [&](const Problem& problem) {
    return core->get_best_kernels(problem, 2).value().size();
  };
  std::future<std::size_t> slow = std::async(std::launch::async, best_two, problem_);
  waits.get_future().wait();
  std::future<std::size_t> quick = std::async(std::launch::async, best_two, other);
  EXPECT_EQ(quick.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  released.set_value();
  EXPECT_EQ(slow.get(), 2U);
  EXPECT_EQ(quick.get(), 2U);
}

TEST_F(ServiceCoreTest, WhatCannotBeLoadedIsNoAlternative) {
  {
    const auto core = open();
    const auto tuned = must(core->tune(problem_, few_trials()));
    for (const RankedConfiguration& ranked : tuned.record.runners_up) {
      if (ranked.artifact == tuned.record.winner.artifact) continue;
      std::filesystem::remove(core->cache().artifacts().path(ranked.artifact));
    }
  }
  world_.toolkit_missing = true;
  const auto core = open(MissPolicy::fail);
  const std::vector<Kernel> kernels = must(core->get_best_kernels(problem_, 100));
  ASSERT_GE(kernels.size(), 1U);
  for (const Kernel& kernel : kernels) {
    EXPECT_EQ(kernel.summary().artifact, kernels.front().summary().artifact);
  }
}

TEST_F(ServiceCoreTest, WithoutARecordTheBestKernelsArePredictions) {
  const auto core = open();
  const std::vector<Kernel> kernels = must(core->get_best_kernels(problem_, 3));
  EXPECT_EQ(kernels.size(), 3U);
  for (const Kernel& kernel : kernels) EXPECT_EQ(kernel.match(), Match::predicted);
  const std::size_t records = core->cache().records().list().size();
  EXPECT_EQ(open()->get_best_kernels(problem_, 3)->size(), 3U);
  EXPECT_EQ(core->cache().records().list().size(), records) << "predicted once";
  const Problem wrong = Problem::make("vector_add", {{"n", 0}}, {{"dtype", "bf16"}});
  EXPECT_EQ(core->get_best_kernels(wrong, 2).error().code, ErrorCode::invalid_argument);
}

TEST_F(ServiceCoreTest, TuningReplacesAPredictionThatWasServed) {
  const auto core = open();
  ASSERT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
  ASSERT_TRUE(core->tune(problem_, few_trials()));
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::exact);
}

TEST_F(ServiceCoreTest, ARecordThatCannotBeWrittenIsNamedInItsResult) {
  const auto core = open();
  {
    const FaultyFiles full(cache_.path().string(), FaultyFiles::Call::write, ENOSPC);
    const auto tuned = must(core->tune(problem_, few_trials()));
    EXPECT_NE(tuned.unstored, "");
    const TuningResult predicted = must(core->predict(problem_, {.trials = 1}));
    EXPECT_NE(predicted.unstored, "");
  }
  EXPECT_TRUE(core->answers().look_up(*core->bind(problem_)).records.empty());
  EXPECT_EQ(core->tune(problem_, few_trials())->unstored, "");
  EXPECT_EQ(core->predict(problem_, {.trials = 1})->unstored, "");
}

TEST_F(ServiceCoreTest, AKernelTunedForOneStateOfTheL2IsNotServedForAnother) {
  l2_ = L2State::mixed;
  const auto tuned = must(open()->tune(problem_, few_trials()));
  EXPECT_EQ(tuned.record.key.policy.text(), "l2=mixed launch=graph power=sustained");
  EXPECT_TRUE(open(MissPolicy::fail)->get_best_kernel(problem_));
  l2_ = L2State::warm;
  EXPECT_FALSE(open(MissPolicy::fail)->get_best_kernel(problem_));
  l2_ = L2State::cold;
  EXPECT_FALSE(open(MissPolicy::fail)->get_best_kernel(problem_));
}

// The fake device has no noise; of a tie the default would win.
TEST_F(ServiceCoreTest, TheFastestOfTheMeasuredWinsUnlessTheDefaultTies) {
  const auto core = open();
  const auto tuned = must(core->tune(problem_, few_trials()));
  double best = 1e30;
  for (const Trial& trial : tuned.trials) {
    if (trial.outcome == Outcome::ok) best = std::min(best, trial.measurement.median_us());
  }
  const RankedConfiguration& winner = tuned.record.winner;
  ASSERT_TRUE(tuned.record.baseline);
  const RankedConfiguration& baseline = *tuned.record.baseline;
  if (winner.choice == baseline.choice) {
    EXPECT_LE(winner.measurement.median_us(), 1.01 * best);
  } else {
    EXPECT_DOUBLE_EQ(winner.measurement.median_us(), best);
    EXPECT_LT(best, baseline.measurement.median_us());
  }
}

TEST_F(ServiceCoreTest, TuneNowTunesAMissAndIgnoresAPrediction) {
  ASSERT_TRUE(open()->get_best_kernel(problem_));  // leaves a predicted record
  const auto core = open(MissPolicy::tune_now);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::exact);
}

TEST_F(ServiceCoreTest, WhatCallersWaitForIsStopped) {
  const auto core = open();
  TuningOptions options = few_trials();
  options.progress = [&](const TuningProgress&) { core->stop_tuning(); };
  EXPECT_THAT(core->tune(problem_, options), Fails("tuning was stopped"));
  EXPECT_TRUE(core->tune(problem_, few_trials()));
}

TEST_F(ServiceCoreTest, TheFailPolicyNamesTheKeyAndTheReason) {
  EXPECT_THAT(
      open(MissPolicy::fail)->get_best_kernel(problem_),
      Fails(ErrorCode::not_found,
            ::testing::AllOf(HasSubstr("vector_add n=4096 dtype=bf16"), HasSubstr("absent"))));
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(ServiceCoreTest, AFailedLookupIsTriedAgain) {
  const auto core = open();
  world_.loading_fails = true;
  ASSERT_FALSE(core->get_best_kernel(problem_));
  world_.loading_fails = false;
  EXPECT_TRUE(core->get_best_kernel(problem_));
}

TEST_F(ServiceCoreTest, AHotKernelIsFoundWithoutCompilingOrLoadingAgain) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  const int compiles = world_.compiles;
  const int loads = world_.loads;
  std::filesystem::remove_all(cache_.path());
  ASSERT_TRUE(core->get_best_kernel(problem_));
  EXPECT_EQ(world_.compiles, compiles);
  EXPECT_EQ(world_.loads, loads);
}

TEST_F(ServiceCoreTest, OneProblemWrittenInTwoWaysIsOneKernel) {
  const auto core = open();
  const Problem other = Problem::make("rmsnorm", {{"columns", 64}, {"rows", 8}},
                                      {{"weight", "scale"}, {"dtype", "bf16"}});
  const Result<Kernel> a = core->get_best_kernel(rmsnorm(8, 64, DType::bf16));
  const Result<Kernel> b = core->get_best_kernel(other);
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(&a->summary(), &b->summary());
  EXPECT_EQ(world_.loads, 1);
}

TEST_F(ServiceCoreTest, ConcurrentCallersShareOneLookup) {
  const auto core = open();
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { served += core->get_best_kernel(problem_) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 8);
  EXPECT_EQ(world_.loads, 1);
  EXPECT_EQ(world_.compiles, 1);
}

TEST_F(ServiceCoreTest, ALostArtifactIsCompiledAgain) {
  std::string digest;
  {
    const auto core = open();
    ASSERT_TRUE(core->tune(problem_, few_trials()));
    digest = core->get_best_kernel(problem_)->summary().artifact;
    std::filesystem::remove(core->cache().artifacts().path(digest));
  }
  world_.compiles = 0;
  const auto core = open(MissPolicy::fail);
  EXPECT_EQ(core->coverage(problem_).reason, MissReason::artifact_missing);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::exact);
  EXPECT_EQ(world_.compiles, 1);
  EXPECT_EQ(core->coverage(problem_).match, Match::exact);
}

TEST_F(ServiceCoreTest, ACorruptRecordIsAMiss) {
  {
    const auto core = open();
    ASSERT_TRUE(core->tune(problem_, few_trials()));
    for (const RecordStore::Listed& listed : core->cache().records().list()) {
      std::ofstream(listed.path, std::ios::binary | std::ios::trunc) << "torn";
    }
  }
  EXPECT_THAT(open(MissPolicy::fail)->get_best_kernel(problem_), Fails(HasSubstr("corrupt")));
}

TEST_F(ServiceCoreTest, AnotherDriverLowersTheMatchToRecheck) {
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  world_.driver_version = "590.2";
  const auto core = open(MissPolicy::fail);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::recheck);
  EXPECT_EQ(kernel.summary().reason, MissReason::other_driver);
}

// An operation with one template of our own, in a folder outside the library.
class OwnTemplateTest : public ServiceCoreTest {
 protected:
  OwnTemplateTest() {
    template_dirs_ = {std::string(folder_.path())};
    write("scale/operation.json", R"json({
  "operation": "scale", "description": "y = 2 x",
  "dims": {"n": {"bind": "exact"}},
  "dtypes": {"dtype": ["fp32"]},
  "tensors": [
    {"name": "x", "role": "in", "dtype": "dtype", "extent": ["n"]},
    {"name": "y", "role": "out", "dtype": "dtype", "extent": ["n"]}
  ],
  "scalars": [{"name": "factor", "dtype": "fp32", "default": 2}],
  "inputs": {"timing": "normal", "exact": "small_integers"},
  "tolerance": {"accumulate": "fp32"},
  "flops": "n", "bytes": "8 * n",
  "example": {"n": 1024, "dtype": "fp32"},
  "reference": {
    "kernel": "scale_reference", "grid": ["ceil_div(n, 256)"], "block": ["256"],
    "arguments": [{"tensor": "x"}, {"reference": "y"}, {"magnitude": "y"}, {"int64": "n"}]
    }
    })json");
    write("scale/reference.cu", "// reference");
    write("scale/plain/kernel.cu", "// first");
    write("scale/plain/manifest.json", R"json({
  "operation": "scale", "description": "one element per thread", "source": "kernel.cu",
  "arch": {"min": 80},
  "dims": {"n": "runtime"},
  "parameters": {"THREADS": [128, 256, 512]},
  "default": {"THREADS": 256},
  "rules": [{"rule": "THREADS <= 256", "why": "half the registers"}],
  "launches": [{
    "kernel": "scale", "grid": ["ceil_div(n, THREADS)"], "block": ["THREADS"],
    "arguments": [{"tensor": "x"}, {"tensor": "y"}, {"scalar": "factor"}, {"int64": "n"}]
    }]
    })json");
    problem_ = Problem::make("scale", {{"n", 1000}}, {{"dtype", "fp32"}});
  }

  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(publish_file(std::filesystem::path(folder_.path()) / name, text));
  }

  ScopedTempDir folder_;
};

TEST_F(OwnTemplateTest, IsTunedAndFetchedLikeABuiltInOne) {
  const auto core = open();
  const auto tuned = must(core->tune(problem_, few_trials()));
  EXPECT_EQ(tuned.rejected, 1);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.summary().kernel_template, "scale/plain");
}

TEST_F(OwnTemplateTest, AnOperationThatMarksNoTensorHasNoMixedL2) {
  l2_ = L2State::mixed;
  const auto core = open();
  EXPECT_THAT(core->get_best_kernel(problem_),
              Fails(ErrorCode::invalid_argument, HasSubstr("operation scale marks none")));
  EXPECT_EQ(core->tune(problem_, few_trials()).error().code, ErrorCode::invalid_argument);
}

TEST_F(OwnTemplateTest, AChangedSourceLowersTheMatchToSeedAndIsCompiledAnew) {
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  const std::string before = open()->get_best_kernel(problem_)->summary().artifact;
  write("scale/plain/kernel.cu", "// second");
  const auto core = open(MissPolicy::fail);
  EXPECT_EQ(core->coverage(problem_).match, Match::none);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::stale_code);
  EXPECT_EQ(kernel.summary().reason, MissReason::template_changed);
  EXPECT_NE(kernel.summary().artifact, before);
}

TEST_F(OwnTemplateTest, AChangedFragmentOfTheManifestLowersTheMatchToSeed) {
  write("include/mine/plain.json", R"({"arch": {"min": 80}, "source": "kernel.cu"})");
  const std::filesystem::path manifest = folder_ / "scale/plain/manifest.json";
  std::string extending = *read_file(manifest);
  const std::string source = "\"source\": \"kernel.cu\"";
  extending.replace(extending.find(source), source.size(), "\"extends\": \"mine/plain.json\"");
  write("scale/plain/manifest.json", extending);
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  EXPECT_EQ(open(MissPolicy::fail)->get_best_kernel(problem_)->match(), Match::exact);
  write("include/mine/plain.json", R"({"arch": {"min": 90}, "source": "kernel.cu"})");
  const auto core = open(MissPolicy::fail);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::stale_code);
  EXPECT_EQ(kernel.summary().reason, MissReason::template_changed);
}

TEST_F(OwnTemplateTest, APredictionOfAChangedSourceIsCompiledAnewToo) {
  const std::string before = open()->get_best_kernel(problem_)->summary().artifact;
  write("scale/plain/kernel.cu", "// second");
  const auto core = open(MissPolicy::fail);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::predicted);
  EXPECT_EQ(kernel.summary().reason, MissReason::template_changed);
  EXPECT_NE(kernel.summary().artifact, before);
}

TEST_F(OwnTemplateTest, ARecordWhoseConfigurationBreaksARuleNowIsPassedOver) {
  const auto tuned = must(open()->tune(problem_, few_trials()));
  const std::string manifest =
      *read_file(std::filesystem::path(folder_.path()) / "scale/plain/manifest.json");
  std::string changed = manifest;
  const std::string rule = "THREADS <= 256";
  const std::int64_t threads = tuned.record.winner.choice.configuration.at("THREADS");
  changed.replace(changed.find(rule), rule.size(), "THREADS != " + std::to_string(threads));
  const std::string written = "\"default\": {\"THREADS\": 256}";
  changed.replace(changed.find(written), written.size(),
                  threads == 512 ? written : "\"default\": {\"THREADS\": 512}");
  write("scale/plain/manifest.json", changed);
  const auto core = open(MissPolicy::fail);
  EXPECT_EQ(core->coverage(problem_).reason, MissReason::rule_violated);
  EXPECT_FALSE(core->get_best_kernel(problem_));
}

TEST_F(OwnTemplateTest, FailuresOfASessionThatEndsInAnErrorAreKept) {
  // The default, which comes first, is wrong; the next one costs the process the device.
  world_.outcome = [](const ExecutionPlan& plan) {
    if (plan.launches.empty() || plan.launches[0].kernel != "scale") return Outcome::ok;
    return plan.launches[0].block[0] == 256 ? Outcome::wrong_result : Outcome::illegal_address;
  };
  EXPECT_THAT(open()->tune(problem_, few_trials()), Fails(ErrorCode::device));

  const auto kept =
      must(read_file(std::filesystem::path(cache_.path()) / "v1/failures/scale.jsonl"));
  EXPECT_NE(kept.find("wrong_result"), std::string::npos) << kept;
  EXPECT_NE(kept.find("illegal_address"), std::string::npos) << kept;
}

TEST_F(OwnTemplateTest, CompilesAConfigurationWithoutTuning) {
  const auto core = open();
  const Candidate candidate =
      must(core->site().candidate(*core->bind(problem_), "scale/plain", {{"THREADS", 128}}));
  const Artifact first = must(core->builder().build(candidate));
  EXPECT_FALSE(first.cached);
  EXPECT_EQ(first.kernel->resources().registers, 32);
  const Artifact second = must(core->builder().build(candidate));
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(world_.compiles, 1);
}

TEST_F(OwnTemplateTest, LaunchChecksItsArguments) {
  const auto core = open();
  const Kernel kernel = must(core->get_best_kernel(problem_));
  alignas(16) static float memory[8];
  const auto message = [&](std::initializer_list<Arg> arguments) {
    const Result<void> launched = kernel.launch(nullptr, arguments);
    return launched ? std::string("launched") : launched.error().message;
  };
  const auto launched = [&](std::size_t position) {
    return world_.driver.launches.back().value(position);
  };
  EXPECT_EQ(message({memory, memory + 4}), "launched");
  EXPECT_EQ(launched(2), std::bit_cast<std::uint32_t>(2.0F));
  EXPECT_EQ(message({memory, memory + 4, 3.0}), "launched");
  EXPECT_EQ(launched(2), std::bit_cast<std::uint32_t>(3.0F));
  EXPECT_EQ(launched(0), reinterpret_cast<DevicePointer>(memory));
  EXPECT_EQ(message({reinterpret_cast<std::uint64_t>(memory), 0x100ULL}), "launched");
  EXPECT_EQ(launched(1), 0x100U);
  EXPECT_THAT(message({memory}), HasSubstr("1 arguments given"));
  EXPECT_THAT(message({memory, memory, 1.0, 2.0}), HasSubstr("4 arguments given"));
  EXPECT_THAT(message({memory, nullptr}), HasSubstr("(y): null pointer"));
  EXPECT_THAT(message({memory + 1, memory}), HasSubstr("aligned to 16"));
  EXPECT_THAT(message({1.0, memory}), HasSubstr("a device pointer expected"));
  EXPECT_THAT(message({memory, memory, memory}), HasSubstr("a scalar expected"));
}

TEST_F(ServiceCoreTest, AServiceForASkuPredictsButDoesNotLaunch) {
  const auto core = open(MissPolicy::predict, "a100_80");
  const Kernel kernel = must(core->get_best_kernel(problem_));
  alignas(16) static char memory[16];
  EXPECT_THAT(kernel.launch(nullptr, {memory, memory, memory}), Fails(ErrorCode::unavailable));
  EXPECT_EQ(core->tune(problem_, few_trials()).error().code, ErrorCode::unavailable);
}

TEST_F(ServiceCoreTest, APredictionMadeWithoutAGpuServesTheSameSkuLater) {
  ASSERT_TRUE(open(MissPolicy::predict, "h200")->get_best_kernel(problem_));
  world_.compiles = 0;
  const auto core = open(MissPolicy::fail);
  const Kernel kernel = must(core->get_best_kernel(problem_));
  EXPECT_EQ(kernel.match(), Match::predicted);
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(ServiceCoreTest, AKernelOutlivesItsService) {
  auto core = open();
  const Kernel kernel = must(core->get_best_kernel(problem_));
  core.reset();
  EXPECT_EQ(kernel.summary().problem, "vector_add n=4096 dtype=bf16");
}

TEST_F(ServiceCoreTest, AnUnknownOperationListsThoseThereAre) {
  EXPECT_THAT(open()->get_best_kernel(Problem::make("matmull", {{"m", 1}})),
              Fails(::testing::AllOf(HasSubstr("matmull"), HasSubstr("vector_add"))));
}

TEST_F(ServiceCoreTest, AProblemLargerThanTheGpusMemoryIsRefusedWithBothSizes) {
  const auto core = open(MissPolicy::predict, "h200");
  const Problem huge = matmul({.m = 1'000'000, .n = 1'000'000, .k = 1'000'000}, DType::bf16);
  for (const Error& error :
       {core->get_best_kernel(huge).error(), core->predict(huge, {.trials = 1}).error(),
        open()->tune(huge, few_trials()).error()}) {
    EXPECT_EQ(error.code, ErrorCode::invalid_argument);
    EXPECT_EQ(error.message.rfind("the tensors of matmul m=1000000 n=1000000 k=1000000 dtype=bf16 "
                                  "take 6000.0 GB; h200 has 1",
                                  0),
              0U)
        << error.message;
  }
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(ServiceCoreTest, WithoutAGpuOrASkuOpeningSaysWhatIsMissing) {
  Surroundings surroundings = fake_surroundings(world_);
  surroundings.describe_device = [](int) -> Result<CudaDeviceInfo> {
    return Error{ErrorCode::unavailable, "no CUDA driver"};
  };
  EXPECT_THAT(ServiceCore::open({}, std::move(surroundings)),
              Fails(ErrorCode::unavailable,
                    ::testing::AllOf(HasSubstr("no CUDA driver"), HasSubstr("sku"))));
}

}  // namespace
}  // namespace kernwright
