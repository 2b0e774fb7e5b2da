#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/temp_dir.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/audit/auditor.h"

namespace kernwright {
namespace {

using std::chrono::steady_clock;

constexpr const char* kSpin = R"(
extern "C" __global__ void spin() {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < 5000000ull);
}
)";

ExecutionPlan spin_plan() {
  LaunchPlan launch;
  launch.kernel = "spin";
  ExecutionPlan plan;
  plan.launches = {launch};
  return plan;
}

/// A process of its own, killed with its owner.
class Child {
 public:
  /// This test program again, running the test `test` with `variable` set.
  Child(const char* test, const char* variable, const char* value) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    const std::string filter = std::string("--gtest_filter=") + test;
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setenv(variable, value, 1);
    ::execl(program.c_str(), program.c_str(), filter.c_str(), "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  /// A process that keeps one core busy.
  Child() {
    pid_ = ::fork();
    if (pid_ != 0) return;
    for (;;) static_cast<void>(steady_clock::now());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
};

const AuditRow* find(const Audit& audit, std::string_view check) {
  for (const AuditRow& row : audit.rows) {
    if (row.check == check) return &row;
  }
  return nullptr;
}

std::string text_of(const Audit& audit) {
  std::string text;
  for (const AuditRow& row : audit.rows) {
    text += concat(to_string(row.trust), ' ', row.check, ": ", row.detail, '\n');
  }
  return text;
}

class AuditorGpuTest : public GpuWorld {
 protected:
  void SetUp() override {
    if (Result<CudaDeviceInfo> info = describe_cuda_device(0)) {
      auditor_ = std::make_unique<Auditor>(info->identity.uuid, AuditorOptions{});
    }
    GpuWorld::SetUp();
    if (!IsSkipped() && device_) auditor_->watch(*device_, *pool_);
  }

  /// The first look of which a row of `checks` is trusted as little as `trust`, or the last: within
  /// a second, or two for C, which NVML's lagging figures may need.
  Audit look_for(std::initializer_list<std::string_view> checks, Trust trust) {
    const auto end = steady_clock::now() + std::chrono::seconds(trust == Trust::c ? 2 : 1);
    Audit audit;
    do {
      audit = auditor_->look();
      for (const std::string_view check : checks) {
        const AuditRow* row = find(audit, check);
        if (row && row->trust >= trust) return audit;
      }
    } while (steady_clock::now() < end);
    return audit;
  }
  static Trust worst(const Audit& audit, std::initializer_list<std::string_view> checks) {
    Trust trust = Trust::a;
    for (const std::string_view check : checks) {
      if (const AuditRow* row = find(audit, check)) trust = std::max(trust, row->trust);
    }
    return trust;
  }

  std::unique_ptr<Auditor> auditor_;
};

TEST_F(AuditorGpuTest, EveryRowIsThere) {
  const Audit audit = auditor_->look();
  for (const char* check :
       {"injection_variables", "mapped_libraries", "launch_cost", "host_load"}) {
    EXPECT_TRUE(find(audit, check)) << check;
  }
  EXPECT_TRUE(find(audit, "nvml") || find(audit, "power_cap"));
  RecordProperty("audit", text_of(audit));
  const AuditRow* cost = find(audit, "launch_cost");
  EXPECT_EQ(cost->detail.find("not measured"), std::string::npos) << cost->detail;
  EXPECT_LT(cost->trust, Trust::c) << text_of(audit);
  EXPECT_EQ(worst(audit, {"foreign_processes"}), Trust::a) << text_of(audit);
}

TEST_F(AuditorGpuTest, LooksTakeLittleTime) {
  auditor_->look();
  const auto begin = steady_clock::now();
  auditor_->look();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

/// `AForeignKernelIsSeen` runs this in another process: kernels until it is killed.
TEST_F(AuditorGpuTest, SpinsUntilKilled) {
  const char* ready = std::getenv("KERNWRIGHT_TEST_SPIN");
  if (ready == nullptr) GTEST_SKIP() << "only as a child";
  CompileRequest request;
  request.name = "spin.cu";
  request.source = kSpin;
  request.target = concat("sm_", device_->profile().sm_arch);
  const CompileResult compiled = pool_->submit(request).get();
  ASSERT_TRUE(compiled) << compiled.error().message;
  auto program = device_->load((*compiled)->bits, spin_plan());
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(device_->run(**program, {}));
  ASSERT_TRUE(publish_file(ready, "ready"));
  for (;;) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(device_->enqueue(**program, {}));
    ASSERT_TRUE(device_->wait());
  }
}

TEST_F(AuditorGpuTest, AForeignKernelIsSeen) {
  const ScopedTempDir dir;
  const std::filesystem::path ready = dir / "ready";
  auditor_->look();
  const Child spinner("AuditorGpuTest.SpinsUntilKilled", "KERNWRIGHT_TEST_SPIN", ready.c_str());
  for (int i = 0; i < 600 && !std::filesystem::exists(ready); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_TRUE(std::filesystem::exists(ready)) << "the other process did not start";
  const Audit audit = look_for({"foreign_processes", "launch_cost"}, Trust::c);
  EXPECT_EQ(worst(audit, {"foreign_processes", "launch_cost"}), Trust::c) << text_of(audit);
}

TEST_F(AuditorGpuTest, CpuHogsAreSeen) {
  auditor_->look();
  // Two per core that we may run on: whichever this thread gets, somebody else wants it too.
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<std::unique_ptr<Child>> hogs;
  for (int i = 0; i < 2 * CPU_COUNT(&allowed); ++i) hogs.push_back(std::make_unique<Child>());
  const Audit audit = look_for({"host_load"}, Trust::b);
  EXPECT_EQ(worst(audit, {"host_load"}), Trust::b) << text_of(audit);
}

/// `AnInjectedLibraryIsSeen` runs this in another process.
TEST_F(AuditorGpuTest, IsInjected) {
  if (std::getenv("CUDA_INJECTION64_PATH") == nullptr) GTEST_SKIP() << "only as a child";
  const Audit audit = auditor_->look();
  EXPECT_EQ(worst(audit, {"injection_variables"}), Trust::c) << text_of(audit);
  EXPECT_EQ(worst(audit, {"mapped_libraries"}), Trust::c) << text_of(audit);
}

TEST_F(AuditorGpuTest, AnInjectedLibraryIsSeen) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path library = program.parent_path() / "libdummy_injection.so";
  ASSERT_TRUE(std::filesystem::exists(library)) << library << ": built and installed with this";
  Child injected("AuditorGpuTest.IsInjected", "CUDA_INJECTION64_PATH", library.c_str());
  EXPECT_EQ(injected.wait(), 0);
}

}  // namespace
}  // namespace kernwright
