#include "tuner/audit/auditor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/doubles/fake_device.h"
#include "tests/temp_dir.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

/// An auditor over facts that the test decides, on a fake device.
class AuditorTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMiB = 1 << 20;

  AuditorTest() {
    facts_.processes.emplace();
    facts_.memory_used_bytes = 0;
    facts_.utilization_percent = 0;
    facts_.clock_event_reasons = 1;
    facts_.violations = {0, 0, 0};
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.landscape = [this](std::string_view, const ExecutionPlan&) {
      return FakeBehavior{.time_us = launch_us_};
    };
    device_ = make_fake_device(options, clock_);
  }

  Auditor make() {
    Auditor::Sources sources;
    sources.gpu = [this]() -> Result<GpuFacts> {
      if (no_facts_) return Error{ErrorCode::unavailable, "no NVML: gone"};
      return facts_;
    };
    sources.environment = [this] { return environment_; };
    sources.mapped_files = [] { return std::vector<std::string>{"/usr/lib/libc.so.6"}; };
    sources.host_load = [] { return HostLoad{}; };
    sources.sleep = [this](std::chrono::milliseconds time) {
      slept_ += time;
      if (slept_ >= quiet_after_) facts_.utilization_percent = 0;
    };
    sources.seconds = [this] { return seconds_; };
    AuditorOptions options;
    options.cache_root = dir_ / "cache";
    return {std::move(sources), std::move(options)};
  }
  Trust trust_of(const Audit& audit, std::string_view check) {
    for (const AuditRow& row : audit.rows) {
      if (row.check == check) return row.trust;
    }
    ADD_FAILURE() << "no row " << check;
    return Trust::c;
  }
  static GpuProcess process(unsigned int pid, std::optional<int> percent = {}) {
    return {pid, GpuProcess::Kind::compute, 500 * kMiB, "python", percent};
  }
  std::optional<LaunchCost> baseline() {
    return LaunchBaseline(dir_ / "cache", device_->identity()).load();
  }
  ScopedTempDir dir_;
  GpuFacts facts_;
  bool no_facts_ = false;
  Environment environment_;
  std::chrono::milliseconds slept_{0};
  std::chrono::milliseconds quiet_after_{10'000};
  double seconds_ = 0;
  double launch_us_ = 0.5;
  ManualClock clock_;
  std::unique_ptr<Device> device_;
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
};

TEST_F(AuditorTest, AQuietMachineIsTrusted) {
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  EXPECT_EQ(auditor.look().trust(), Trust::a);
  EXPECT_EQ(slept_.count(), 0);
}

TEST_F(AuditorTest, WhatWasSeenBeforeTheDeviceWasOpenedCountsOnce) {
  environment_["CUDA_INJECTION64_PATH"] = "/opt/dummy.so";
  Auditor auditor = make();
  environment_.clear();  // too late
  auditor.watch(*device_, pool_);
  EXPECT_EQ(trust_of(auditor.look(), "injection_variables"), Trust::c);
  EXPECT_EQ(trust_of(auditor.look(), "injection_variables"), Trust::a);
}

TEST_F(AuditorTest, WithoutNvmlTheRestIsAudited) {
  no_facts_ = true;
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  const Audit audit = auditor.look();
  EXPECT_EQ(trust_of(audit, "nvml"), Trust::b);
  EXPECT_EQ(trust_of(audit, "injection_variables"), Trust::a);
}

TEST_F(AuditorTest, OurOwnContextIsNoCompany) {
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  facts_.processes = {process(static_cast<unsigned int>(::getpid()))};
  facts_.memory_used_bytes = 500 * kMiB;
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::a);
  facts_.memory_used_bytes = 900 * kMiB;  // of somebody whom NVML does not show us
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);
  facts_.utilization_percent = 60;
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::c);
}

TEST_F(AuditorTest, InAnotherPidNamespaceTheFirstNewProcessIsOurs) {
  facts_.processes = {process(90'001, 0)};
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  auditor.look();
  facts_.processes = {process(90'001, 0), process(90'002, 70)};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);  // the idle one of before
  facts_.processes = {process(90'001, 70), process(90'002)};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::c);
  facts_.processes = {process(90'002)};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::a);
  facts_.processes = {process(90'003, 70), process(90'002)};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::c);
}

TEST_F(AuditorTest, MemoryInUseBeforeUsIsSomebodyElses) {
  facts_.memory_used_bytes = 700 * kMiB;
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  facts_.memory_used_bytes = 2000 * kMiB;  // with ours
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);
}

TEST_F(AuditorTest, APauseEndsWhenTheGpuIsSeenToRest) {
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  auditor.look();
  facts_.processes = {process(static_cast<unsigned int>(::getpid())), process(7)};
  facts_.utilization_percent = 90;  // by us, until a moment ago
  quiet_after_ = std::chrono::milliseconds(200);
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);
  EXPECT_EQ(slept_.count(), 200);
  facts_.utilization_percent = 90;
  quiet_after_ = std::chrono::milliseconds(10'000);
  slept_ = {};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::c);
  EXPECT_LE(slept_.count(), 1000);
}

TEST_F(AuditorTest, AnIdleProcessOnAGpuThatDoesNotRestIsNotBelieved) {
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  facts_.processes = {process(static_cast<unsigned int>(::getpid())), process(7, 0)};
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::b);
  facts_.utilization_percent = 90;
  EXPECT_EQ(trust_of(auditor.look(), "foreign_processes"), Trust::c);
}

TEST_F(AuditorTest, ViolationsAreThoseSinceTheLastLook) {
  facts_.violations.thermal = 100;  // of weeks
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  seconds_ = 10;
  EXPECT_EQ(trust_of(auditor.look(), "clock_events"), Trust::a);
  seconds_ = 20;
  facts_.violations.thermal = 105;
  EXPECT_EQ(trust_of(auditor.look(), "clock_events"), Trust::b);
  seconds_ = 30;
  EXPECT_EQ(trust_of(auditor.look(), "clock_events"), Trust::a);
}

TEST_F(AuditorTest, TheFirstCleanLookMakesTheBaseline) {
  environment_["LD_PRELOAD"] = "/opt/hook.so";
  {
    Auditor auditor = make();
    auditor.watch(*device_, pool_);
    auditor.look();
    EXPECT_FALSE(baseline());
  }
  environment_.clear();
  {
    Auditor auditor = make();
    auditor.watch(*device_, pool_);
    auditor.look();
    ASSERT_TRUE(baseline());
    EXPECT_DOUBLE_EQ(baseline()->graph_node_us, 0.5);
  }
  launch_us_ = 0.75;  // a hook that does not show otherwise
  {
    Auditor auditor = make();
    auditor.watch(*device_, pool_);
    EXPECT_EQ(trust_of(auditor.look(), "launch_cost"), Trust::b);
    EXPECT_DOUBLE_EQ(baseline()->graph_node_us, 0.5);
  }
  launch_us_ = 1.05;
  Auditor auditor = make();
  auditor.watch(*device_, pool_);
  EXPECT_EQ(trust_of(auditor.look(), "launch_cost"), Trust::c);
}

}  // namespace
}  // namespace kernwright
