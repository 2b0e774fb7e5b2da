#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/driver_device.h"
#include "service/serve/core.h"
#include "support/hash.h"
#include "support/text.h"
#include "tests/device/plans.h"
#include "tests/doubles/fake_device.h"
#include "tests/doubles/fake_driver.h"
#include "tests/doubles/host_data_ops.h"

namespace kernwright {

/// The counts of one test's fakes, and their orders.
struct FakeWorld {
  std::atomic<int> compiles{0};
  std::atomic<int> identities{0};
  std::atomic<int> loads{0};
  std::function<void()> compiling = [] {};  ///< called by every compile
  bool toolkit_missing = false;
  bool loading_fails = false;
  std::function<int(const CompileRequest&)> spills = [](const CompileRequest&) { return 0; };
  /// Returns the outcome of a program that runs on the device.
  std::function<Outcome(const ExecutionPlan&)> outcome = [](const ExecutionPlan&) {
    return Outcome::ok;
  };
  /// Returns the counters of a launch; if it is empty there is no profiler.
  std::function<Result<CounterSet>(const ExecutionPlan&)> counters;
  std::string driver_version = "580.1";
  ManualClock clock;
  FakeDriver driver;
};

/// "Compiles" to a digest of everything that the compiler would see.
class FakeCompiler final : public Compiler {
 public:
  explicit FakeCompiler(FakeWorld& world) : world_(world) {}

  Result<std::string> identity() override {
    ++world_.identities;
    if (world_.toolkit_missing) return Error{ErrorCode::unavailable, "no NVRTC here"};
    return std::string("fake 1.0");
  }
  Result<CompiledKernel> compile(const CompileRequest& request) override {
    ++world_.compiles;
    world_.compiling();
    CompiledKernel kernel;
    kernel.bits = request.digest("fake").hex();
    kernel.target = request.target;
    kernel.entries = {{"kernel", {.registers = 32, .spill_store_bytes = world_.spills(request)}}};
    return kernel;
  }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::compile, "nothing to link"};
  }

 private:
  FakeWorld& world_;
};

/// A launcher whose driver is the fake one of `world`.
inline Result<std::unique_ptr<Launcher>> load_fake_launcher(FakeWorld& world,
                                                            const ExecutionPlan& plan) {
  for (const LaunchPlan& launch : plan.launches) {
    world.driver.kernels[launch.kernel] = parameter_sizes(plan, launch);
  }
  return load_launcher(world.driver.api(), FakeDriver::cubin(), plan, 0);
}

/// A GPU, a toolkit and a launcher that exist in `world` alone. The time of a program is a fixed
/// function of its bits.
inline Surroundings fake_surroundings(FakeWorld& world) {
  Surroundings surroundings;
  surroundings.shortlists = false;  // their thread would use the fake driver beside the caller's
  surroundings.make_compiler = [&world](const auto&, const auto&) {
    return std::make_unique<FakeCompiler>(world);
  };
  surroundings.describe_device = [&world](int ordinal) -> Result<CudaDeviceInfo> {
    return CudaDeviceInfo{
        *find_profile("h200"),
        {.uuid = "GPU-fake", .driver_version = world.driver_version, .ordinal = ordinal}};
  };
  surroundings.open_device = [&world](int) -> Result<std::unique_ptr<Device>> {
    FakeDeviceOptions options;
    options.profile = *find_profile("h200");
    // Small, so that the buffer sets of a cold L2 stay small.
    options.profile.l2_bytes = 1 << 16;
    options.landscape = [&world](std::string_view cubin, const ExecutionPlan& plan) {
      return FakeBehavior{.time_us = 10.0 + digest_of(cubin).bytes[0],
                          .outcome = world.outcome(plan)};
    };
    options.counters = world.counters;
    return make_fake_device(std::move(options), world.clock);
  };
  surroundings.make_data_ops = [](Device&, CompilePool&) -> Result<std::unique_ptr<DataOps>> {
    return make_host_data_ops();
  };
  surroundings.load_launcher = [&world](std::string_view, const ExecutionPlan& plan,
                                        int) -> Result<std::unique_ptr<Launcher>> {
    static std::mutex mutex;  // the fake driver is used by one thread at a time
    const std::lock_guard lock(mutex);
    ++world.loads;
    if (world.loading_fails) return Error{ErrorCode::device, "cuLibraryLoadData: out of memory"};
    return load_fake_launcher(world, plan);
  };
  surroundings.in_capture = [&world](void* stream) {
    return in_capture(world.driver.api(), static_cast<CUstream>(stream));
  };
  return surroundings;
}

}  // namespace kernwright
