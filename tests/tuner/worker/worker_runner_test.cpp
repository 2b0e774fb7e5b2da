#include "tuner/worker/worker_runner.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "device/cuda/cuda_device.h"
#include "support/processes/find_tool.h"
#include "support/processes/subprocess.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/worker/protocol.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

fs::path fake_worker() {
  return fs::read_symlink("/proc/self/exe").parent_path() / "kernwright_fake_worker";
}

bool is_running(pid_t pid) {
  const auto status = read_file(concat("/proc/", pid, "/stat"));
  // "PID (NAME) STATE ...": a zombie has ended, whoever fails to reap it.
  return status && status->find(") Z ") == std::string::npos;
}

/// A worker that misbehaves, and a runner on it.
class WorkerRunnerTest : public ::testing::Test {
 protected:
  void TearDown() override {
    runner_.reset();
    worker_.reset();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left behind";
  }

  Result<void> start(std::vector<std::string> behaviour) {
    behaviour.push_back(concat("state=", (directory_ / "state").native()));
    auto worker = Worker::start({.program = fake_worker(),
                                 .arguments = std::move(behaviour),
                                 .floor_seconds = floor_seconds_,
                                 .log = [this](std::string_view line) { log_ += line; },
                                 .inform = [this](std::string_view line) { started_ += line; }},
                                pool_);
    if (!worker) return worker.error();
    worker_ = std::move(worker).value();
    return {};
  }
  Result<void> open() {
    auto runner = open_worker_runner(*worker_, {*catalog_, {templates()}, problem_, profile_}, {});
    if (!runner) return runner.error();
    runner_ = std::move(runner).value();
    return {};
  }
  void run(std::vector<std::string> behaviour) {
    const auto started = start(std::move(behaviour));
    ASSERT_TRUE(started) << started.error().message;
    const auto opened = open();
    ASSERT_TRUE(opened) << opened.error().message;
  }

  fs::path templates() const { return fs::path(catalog_.operation().folder).parent_path(); }
  Candidate candidate(std::int64_t a) const {
    const Configuration configuration({{"A", a}, {"B", 1}, {"R", 1}});
    const auto made = make_candidate(**(*catalog_).kernel_template("toy/plain"), problem_,
                                     configuration, profile_);
    return made.value();
  }
  Runner::Prepared prepare(std::int64_t a) {
    CompiledKernel kernel;
    kernel.bits = "bits\n\xff";
    kernel.entries.push_back({"toy", {.registers = 32}});
    const auto prepared = runner_->prepare(candidate(a), kernel);
    EXPECT_TRUE(prepared) << prepared.error().message;
    return prepared ? prepared.value() : Runner::Prepared{};
  }
  Runner::Step check(Runner::Id id) {
    const auto checked = runner_->check(id, Runner::CheckDepth::screening);
    EXPECT_TRUE(checked) << checked.error().message;
    return checked ? checked.value().step : Runner::Step{};
  }
  std::vector<Runner::Sampled> sample(const std::vector<Runner::Id>& order) {
    auto sampled = runner_->sample(order);
    EXPECT_TRUE(sampled) << sampled.error().message;
    if (!sampled) return std::vector<Runner::Sampled>(order.size());
    EXPECT_EQ(sampled->size(), order.size());
    return *std::move(sampled);
  }

  /// The next candidate is loaded, checked and measured as if nothing had happened.
  void expect_the_next_is_measured() {
    const Runner::Prepared next = prepare(4);
    ASSERT_EQ(next.step.outcome, Outcome::ok) << next.step.detail;
    EXPECT_EQ(check(next.id).outcome, Outcome::ok);
    const auto sampled = sample({next.id});
    EXPECT_EQ(sampled[0].step.outcome, Outcome::ok) << sampled[0].step.detail;
    EXPECT_EQ(sampled[0].sample.us, 40);
    EXPECT_FALSE(runner_->lost());
  }

  ScopedTempDir directory_;
  ToyCatalog catalog_;
  DeviceProfile profile_ = find_profile("h200").value();
  BoundProblem problem_ = catalog_.problem();
  std::shared_ptr<FakeCompiler> compiler_ = std::make_shared<FakeCompiler>();
  CompilePool pool_{compiler_, {.threads = 2}};
  double floor_seconds_ = 1200;  ///< no deadline is met by chance, on a busy machine either
  std::string log_;
  std::string started_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(WorkerRunnerTest, MeasuresThroughTheWorker) {
  run({});
  const Runner::Id id = prepare(2).id;
  const auto checked = must(runner_->check(id, Runner::CheckDepth::finalist));
  EXPECT_EQ(checked.report.max_error, 0.25);
  EXPECT_EQ(checked.report.elements, 10);
  EXPECT_TRUE(checked.report.exact);
  EXPECT_TRUE(checked.report.unmapped);
  EXPECT_FALSE(checked.report.guarded);
  const auto sampled = sample({id, Runner::kSmProbe, id});
  EXPECT_EQ(sampled[0].sample, (Sample{20, 1980, 0.5}));
  EXPECT_EQ(sampled[1].sample.us, 10);
  EXPECT_EQ(sampled[2].sample.us, 20);
  const auto after = must(runner_->check_after_timing(id));
  EXPECT_TRUE(after.report.after_timing);
  EXPECT_EQ(runner_->launch_gap_us(id).value(), 1.5);
  EXPECT_EQ(runner_->launch_paths(id).value(),
            (LaunchTimes{{{KernelPath::stream, 3.25, 4}, {KernelPath::rebind, 1.25, 4}},
                         KernelPath::rebind}));
  EXPECT_EQ(runner_->audit().value(), (Audit{{{"power_cap", Trust::b, "700 of 700 W"}}}));
  runner_->drop(id);
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerRunnerTest, TheUseOfTheDeviceIsKnownAcrossProcesses) {
  run({"check:3=abort@1"});
  const Runner::Id id = prepare(2).id;
  static_cast<void>(runner_->take_use());
  sample({id, id});
  const DeviceUse once = runner_->take_use();
  EXPECT_NEAR(once.busy_seconds, 0.02, 1e-9);
  EXPECT_NEAR(once.idle_seconds(), 0.01, 1e-9);
  EXPECT_NEAR(once.longest_idle_seconds, 0.01, 1e-9);
  EXPECT_EQ(runner_->take_use().busy_seconds, 0);
  sample({id});
  const double ended = once.end_seconds + 0.02;
  check(prepare(3).id);
  ASSERT_EQ(runner_->epoch(), 1);
  const DeviceUse over = runner_->take_use();
  EXPECT_NEAR(over.longest_idle_seconds, 2.01 - ended, 1e-9) << "while the process was replaced";
  EXPECT_GT(over.idle_seconds(), 2.01 - ended - 1e-9);
}

TEST_F(WorkerRunnerTest, ADeviceThatWaitsForUsIsKeptAtWork) {
  run({"fill=work"});
  const Runner::Id id = prepare(2).id;
  sample({id});
  static_cast<void>(runner_->take_use());
  DeviceUse use;
  // On a busy machine the worker may not get to run at once.
  for (int wait_ms = 30; wait_ms <= 3000 && use.busy_seconds <= 0.01 + 0.003; wait_ms *= 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    sample({id});
    use = runner_->take_use();
  }
  EXPECT_GT(use.busy_seconds, 0.01 + 0.003) << "the sample alone takes 0.01";
  EXPECT_NEAR(use.idle_seconds(), 0.01, 1e-9) << "before the sample, by its own clock";
}

/// The place at which a candidate misbehaves, and its expected result.
struct Fault {
  std::string behaviour;
  Outcome outcome = Outcome::ok;
  std::string detail;
};

class WorkerRunnerFaultTest : public WorkerRunnerTest, public ::testing::WithParamInterface<Fault> {
 protected:
  void SetUp() override {
    if (GetParam().outcome == Outcome::timed_out) floor_seconds_ = 0.4;
  }
};

TEST_P(WorkerRunnerFaultTest, CostsTheCandidateInItsCheck) {
  run({concat("check:3=", GetParam().behaviour)});
  const Runner::Id good = prepare(2).id;
  const Runner::Id bad = prepare(3).id;
  const Runner::Step step = check(bad);
  EXPECT_EQ(to_string(step.outcome), to_string(GetParam().outcome));
  EXPECT_THAT(step.detail, ContainsRegex(GetParam().detail));
  EXPECT_GT(runner_->epoch(), 0);
  EXPECT_THAT(log_, HasSubstr("toy/plain A=3 B=1 R=1"));
  // It is not run again, others are, those that were loaded before too.
  const int epoch = runner_->epoch();
  EXPECT_EQ(check(bad).outcome, GetParam().outcome);
  EXPECT_EQ(sample({good})[0].sample.us, 20);
  EXPECT_EQ(runner_->epoch(), epoch);
  expect_the_next_is_measured();
}

TEST_P(WorkerRunnerFaultTest, CostsTheCandidateAmongOthersThatAreSampled) {
  run({concat("sample:3=", GetParam().behaviour)});
  const Runner::Id first = prepare(1).id;
  const Runner::Id bad = prepare(3).id;
  const Runner::Id last = prepare(2).id;
  const auto sampled = sample({first, bad, Runner::kSmProbe, last, bad, first});
  for (const std::size_t entry : {std::size_t{1}, std::size_t{4}}) {
    EXPECT_EQ(to_string(sampled[entry].step.outcome), to_string(GetParam().outcome));
    EXPECT_THAT(sampled[entry].step.detail, ContainsRegex(GetParam().detail));
  }
  EXPECT_EQ(sampled[0].sample.us, 10);
  EXPECT_EQ(sampled[2].sample.us, 10);
  EXPECT_EQ(sampled[3].sample.us, 20);
  EXPECT_EQ(sampled[5].sample.us, 10);
  expect_the_next_is_measured();
}

TEST_P(WorkerRunnerFaultTest, CostsTheCandidateWhereItIsLoaded) {
  run({concat("prepare:3=", GetParam().behaviour)});
  const Runner::Prepared bad = prepare(3);
  EXPECT_EQ(to_string(bad.step.outcome), to_string(GetParam().outcome));
  EXPECT_THAT(bad.step.detail, ContainsRegex(GetParam().detail));
  expect_the_next_is_measured();
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerRunnerFaultTest,
    testing::Values(Fault{"abort", Outcome::worker_died,
                          "ended with signal 6 .SIGABRT.: assertion failed"},
                    Fault{"segv", Outcome::worker_died, "ended with signal 11 .SIGSEGV."},
                    Fault{"exit", Outcome::worker_died, "ended with exit status 7"},
                    Fault{"hang", Outcome::timed_out, "no answer within"},
                    Fault{"stop", Outcome::timed_out, "no answer within"},
                    Fault{"garbage", Outcome::worker_died, "not a message: its length 1936287828"},
                    Fault{"text", Outcome::worker_died, "not a JSON object"},
                    Fault{"cut", Outcome::worker_died, "a message was cut off: 3 of 100 bytes"},
                    Fault{"illegal_address", Outcome::illegal_address, "sticky"},
                    Fault{"launch_failed", Outcome::launch_failed, "sticky"}),
    [](const auto& fault) { return fault.param.behaviour; });

TEST_F(WorkerRunnerTest, LaunchPathsThatEndTheProcessAreAnErrorAndItIsReplaced) {
  run({"paths:3=segv"});
  const Runner::Id bad = prepare(3).id;
  EXPECT_THAT(runner_->launch_paths(bad), Fails(HasSubstr("worker_died")));
  EXPECT_FALSE(runner_->lost());
  const Runner::Id good = prepare(2).id;
  EXPECT_TRUE(runner_->launch_paths(good));
}

TEST_F(WorkerRunnerTest, CountsThroughTheWorker) {
  run({});
  const auto counted = must(runner_->count(prepare(2).id, L2State::warm));
  EXPECT_EQ(counted.version, "13.0");
  EXPECT_EQ(counted.cache, L2State::warm);
  EXPECT_EQ(counted.passes, 3);
  ASSERT_EQ(counted.kernels.size(), 1U);
  EXPECT_EQ(counted.kernels.front().name, "toy");
  EXPECT_EQ(counted.time_us(), 5.216);
  EXPECT_EQ(counted.kernels.front().values.back().reason, "NaN");
}

TEST_F(WorkerRunnerTest, ACountThatEndsTheProcessIsAnErrorAndItIsReplaced) {
  run({"count:2=segv"});
  EXPECT_THAT(runner_->count(prepare(2).id, L2State::cold), Fails(ErrorCode::device));
  expect_the_next_is_measured();
}

TEST_F(WorkerRunnerTest, OutOfMemoryKeepsTheProcess) {
  run({"prepare:3=out_of_memory", "check:5=out_of_memory"});
  EXPECT_EQ(prepare(3).step.outcome, Outcome::out_of_memory);
  EXPECT_EQ(check(prepare(5).id).detail, "no 1 TB here");
  EXPECT_EQ(runner_->epoch(), 0);
  expect_the_next_is_measured();
}

TEST_F(WorkerRunnerTest, AHugeMessageArrivesWhole) {
  run({"check:3=huge"});
  const Runner::Step step = check(prepare(3).id);
  EXPECT_EQ(step.outcome, Outcome::wrong_result);
  EXPECT_EQ(step.detail.size(), 20'000'000U);
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerRunnerTest, WhatTheRunnerThrowsIsAnError) {
  run({"gap:3=throw"});
  const Runner::Id id = prepare(3).id;
  EXPECT_THAT(runner_->launch_gap_us(id), Fails("thrown by the runner"));
  expect_the_next_is_measured();
}

TEST_F(WorkerRunnerTest, ACandidateWhoseProcessDiedOnceIsMeasuredAfterAll) {
  run({"sample:3=segv@1", "check:5=abort@2"});
  const Runner::Id once = prepare(3).id;
  const Runner::Id good = prepare(2).id;
  const auto sampled = sample({good, once, good});
  EXPECT_EQ(sampled[0].sample.us, 20);
  EXPECT_EQ(sampled[1].sample.us, 30);
  EXPECT_EQ(runner_->epoch(), 1);
  EXPECT_EQ(check(prepare(5).id).outcome, Outcome::ok);
  EXPECT_EQ(runner_->epoch(), 2);
}

TEST_F(WorkerRunnerTest, AProvenCandidateProvesItselfAgainInAFreshProcess) {
  run({"check:3=illegal_address", "check:2=out_of_memory@2"});
  const Runner::Id proven = prepare(2).id;
  const Runner::Id unproven = prepare(1).id;
  EXPECT_EQ(check(proven).outcome, Outcome::ok);
  EXPECT_EQ(check(prepare(3).id).outcome, Outcome::illegal_address);
  const auto sampled = sample({proven, unproven});
  EXPECT_EQ(sampled[0].step.outcome, Outcome::out_of_memory);
  EXPECT_EQ(sampled[1].step.outcome, Outcome::ok);
}

TEST_F(WorkerRunnerTest, WhenAllFailEachIsNamedAndNoProcessIsLeft) {
  run({"check=abort"});
  for (const std::int64_t a : {1, 2, 3, 4, 5, 6}) {
    EXPECT_EQ(check(prepare(a).id).outcome, Outcome::worker_died);
    EXPECT_THAT(log_, HasSubstr(concat("toy/plain A=", a, " B=1 R=1")));
  }
  EXPECT_EQ(runner_->epoch(), 12);
  EXPECT_FALSE(runner_->lost());
  // One compile for all the processes.
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(WorkerRunnerTest, ASlowCanaryBlamesTheDevice) {
  run({"check:3=illegal_address", "reference=slow@2"});
  const Runner::Step step = check(prepare(3).id);
  EXPECT_EQ(step.outcome, Outcome::device_lost);
  EXPECT_THAT(step.detail, HasSubstr("takes 13 us, at first 10"));
  EXPECT_TRUE(runner_->lost());
  EXPECT_FALSE(runner_->sample(std::vector<Runner::Id>{Runner::kSmProbe}));
  EXPECT_FALSE(open());
}

TEST_F(WorkerRunnerTest, AFailingCanaryBlamesTheDevice) {
  run({"sample:3=abort", "reference=illegal_address@2"});
  const auto sampled = sample({prepare(3).id, prepare(2).id});
  EXPECT_EQ(sampled[0].step.outcome, Outcome::device_lost);
  EXPECT_EQ(sampled[1].step.outcome, Outcome::device_lost);
  EXPECT_THAT(sampled[0].step.detail, HasSubstr("the SM probe kernel failed"));
  EXPECT_TRUE(runner_->lost());
}

TEST_F(WorkerRunnerTest, AProblemThatCannotBeOpenedAgainBlamesTheDevice) {
  run({"check:3=segv", "open=exit@2"});
  EXPECT_EQ(check(prepare(3).id).outcome, Outcome::device_lost);
  EXPECT_TRUE(runner_->lost());
}

TEST_F(WorkerRunnerTest, AFailedAuditIsTriedAgain) {
  run({"audit=abort@1", "drop:2=abort@2"});
  EXPECT_TRUE(runner_->audit());
  EXPECT_EQ(runner_->epoch(), 1);
  runner_->drop(prepare(2).id);
  EXPECT_EQ(runner_->epoch(), 2);
  expect_the_next_is_measured();
}

TEST_F(WorkerRunnerTest, WorkThatKeepsFailingWithoutACandidateBlamesTheDevice) {
  run({"audit=abort"});
  EXPECT_FALSE(runner_->audit());
  EXPECT_TRUE(runner_->lost());
}

TEST_F(WorkerRunnerTest, TheWorkerServesOneProblemAfterAnother) {
  run({});
  const Runner::Id id = prepare(2).id;
  const std::unique_ptr<Runner> first = std::move(runner_);
  ASSERT_TRUE(open());
  expect_the_next_is_measured();
  // The first problem is opened again when it is asked for.
  const std::vector<Runner::Id> order{id};
  EXPECT_EQ(first->sample(order).value()[0].sample.us, 20);
  EXPECT_EQ(first->epoch(), 1);
}

TEST_F(WorkerRunnerTest, AProblemThatEndsTheWorkerCostsThatProblem) {
  ASSERT_TRUE(start({"open=abort@1"}));
  EXPECT_THAT(open(), Fails(HasSubstr("could not open toy n=4096 dtype=fp32")));
  ASSERT_TRUE(open());
  expect_the_next_is_measured();
}

TEST_F(WorkerRunnerTest, WithoutADeviceTheRealWorkerSaysWhy) {
  const auto gpu = describe_cuda_device(0);
  if (gpu) GTEST_SKIP() << "there is a GPU";
  const auto program = must(find_tool({}));
  EXPECT_THAT(Worker::start({.program = program}, pool_), Fails(gpu.error().message));
}

TEST_F(WorkerRunnerTest, ThatAProcessRunsIsNoFailure) {
  ASSERT_TRUE(start({}));
  EXPECT_EQ(log_, "");
  EXPECT_THAT(started_, HasSubstr("CUDA started in "));
}

TEST_F(WorkerRunnerTest, OtherTemplatesAreRefused) {
  ASSERT_TRUE(start({}));
  ASSERT_TRUE(publish_file(templates() / "toy/other/kernel.cu", "changed since"));
  EXPECT_THAT(open(), Fails(HasSubstr("templates are not those of the tuning process")));
}

TEST_F(WorkerRunnerTest, AnotherProtocolIsRefused) {
  EXPECT_THAT(start({"hello=other_protocol"}),
              Fails(HasSubstr(concat("speaks protocol 99, not ", detail::kProtocol))));
}

TEST_F(WorkerRunnerTest, AWorkerThatDoesNotStartIsAnError) {
  EXPECT_THAT(start({"hello=abort"}),
              Fails(ErrorCode::unavailable, ContainsRegex("did not start: .*SIGABRT")));
  EXPECT_THAT(Worker::start({.program = "/nowhere/kernwright"}, pool_),
              Fails(HasSubstr("/nowhere/kernwright")));
}

TEST_F(WorkerRunnerTest, KillingTheParentLeavesNoWorkerBehind) {
  const fs::path file = directory_ / "worker";
  auto parent = must(Subprocess::spawn({fake_worker(), {concat("parent=", file.native())}, {}}));
  const auto soon = [](const std::function<bool()>& done) {
    for (int i = 0; i < 2000 && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return done();
  };
  ASSERT_TRUE(soon([&] { return fs::exists(file); }));
  const pid_t worker = std::stoi(read_file(file).value());
  EXPECT_TRUE(is_running(worker));
  ASSERT_EQ(::kill(parent.pid(), SIGKILL), 0);  // the process alone: the worker has its own group
  EXPECT_TRUE(soon([&] { return !is_running(worker); }));
}

}  // namespace
}  // namespace kernwright
