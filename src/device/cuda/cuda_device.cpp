#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <functional>

#include "device/cuda/describe_device.h"
#include "device/cuda/driver_device.h"
#include "device/driver/cuda_context.h"
#include "device/driver/driver.h"
#include "device/driver/memory_report.h"
#include "device/driver/range_profiler.h"
#include "device/program/launch_graph.h"
#include "device/program/loaded_library.h"
#include "device/program/prepared_program.h"
#include "device/timing/clock_stamps.h"
#include "device/timing/fenced_memory.h"
#include "device/timing/kernel_paths.h"
#include "device/timing/timed_graph.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(const std::shared_ptr<CudaContext>& context, CUdeviceptr address, std::int64_t bytes)
      : memory_(context, MemoryHandle(context->api(), address)), bytes_(bytes) {}

  DevicePointer address() const override { return memory_.handle().get(); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  ContextOwned<MemoryHandle> memory_;
  std::int64_t bytes_;
};

class CudaProgram final : public LoadedProgram {
 public:
  CudaProgram(std::shared_ptr<CudaContext> context, std::unique_ptr<PreparedProgram> program)
      : context_(std::move(context)), program_(std::move(program)) {}
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;
  ~CudaProgram() override {
    if (context_->lost()) program_->abandon();
  }

  const PreparedProgram& prepared() const { return *program_; }

 private:
  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<PreparedProgram> program_;
};

/// Launch paths are timed in rounds until their seconds are over. With a train of this length a
/// kernel of 0.1 ms gets several rounds in 0.1 s.
constexpr int kPathRounds = 31;
constexpr double kPathTrainUs = 3'000;

const PreparedProgram& prepared(const LoadedProgram& program) {
  return static_cast<const CudaProgram&>(program).prepared();
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context, CudaDeviceInfo info,
             std::unique_ptr<StreamGate> gate, std::unique_ptr<ClockStamps> stamps,
             LoadCupti load_profiler)
      : context_(std::move(context)),
        info_(std::move(info)),
        gate_(std::move(gate)),
        stamps_(std::move(stamps)),
        load_profiler_(std::move(load_profiler)) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override {
    if (profiler_ == nullptr) return;
    const ContextScope scope(context_->api(), context_->context());
    if (lost() || !scope.status()) profiler_->abandon();
    profiler_.reset();
  }

  const DeviceProfile& profile() const override { return info_.profile; }
  const DeviceIdentity& identity() const override { return info_.identity; }
  bool lost() const override { return context_->lost(); }
  Outcome last_failure() const override { return context_->last_failure(); }

  Result<std::unique_ptr<DeviceBuffer>> allocate(std::int64_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_fenced(std::int64_t bytes) override;
  Result<void> upload(DevicePointer to, std::span<const std::byte> from) override;
  Result<void> download(std::span<std::byte> to, DevicePointer from) override;
  Result<void> fill(DevicePointer to, std::uint8_t value, std::int64_t bytes) override;
  Result<std::shared_ptr<LoadedProgram>> load(std::string_view cubin,
                                              const ExecutionPlan& plan) override;
  Result<void> enqueue(const LoadedProgram& program, const LaunchArguments& arguments,
                       bool ahead) override;
  Result<void> enqueue_beside(const LoadedProgram& program,
                              const LaunchArguments& arguments) override;
  Result<void> wait() override {
    return begin([] { return DriverStatus{}; }, true);
  }
  Result<std::unique_ptr<TimedUnits>> prepare_timing(std::span<const WorkUnit> sets,
                                                     int units) override;
  Result<Sample> sample(TimedUnits& units) override;
  Result<LaunchTimes> time_launch_paths(const LoadedProgram& program,
                                        std::span<const LaunchArguments> sets,
                                        double seconds) override;
  Result<CounterSet> count(const LoadedProgram& program, const LaunchArguments& arguments,
                           const std::function<Result<void>()>& before) override;
  TimerCheck take_timer_check() override { return std::exchange(timer_check_, {}); }
  DeviceUse take_use() override { return use_.take(steady_seconds()); }

 private:
  /// Does the same in the current context. Fills `graphs`: one graph for each set, and one for all
  /// sets.
  Result<LaunchTimes> time_launch_paths(const PreparedProgram& work,
                                        std::span<const LaunchArguments> sets, double seconds,
                                        std::vector<std::unique_ptr<LaunchGraph>>& graphs);
  /// Runs `call`, which returns a DriverStatus, with the context current. Fails if the context is
  /// lost.
  template <typename Call>
  Result<void> begin(Call call, bool wait = false);
  /// Does the same if `call` enqueues work.
  template <typename Call>
  Result<void> enqueue_by(Call call) {
    use_.queued(steady_seconds());
    return begin(std::move(call));
  }

  std::shared_ptr<CudaContext> context_;
  CudaDeviceInfo info_;
  std::unique_ptr<StreamGate> gate_;     ///< null if the GPU has no stream memory operations
  std::unique_ptr<ClockStamps> stamps_;  ///< null if the driver does not assemble PTX
  TimerCheck timer_check_;
  UseMeter use_;
  LoadCupti load_profiler_;
  std::unique_ptr<RangeProfiler> profiler_;  ///< from the first count on
};

template <typename Call>
Result<void> CudaDevice::begin(Call call, bool wait) {
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  KW_TRY(context_->check(call()));
  if (!wait) return {};
  Result<void> waited = context_->wait();
  use_.done(steady_seconds());
  return waited;
}

Result<std::unique_ptr<DeviceBuffer>> CudaDevice::allocate(std::int64_t bytes) {
  if (bytes <= 0) {
    return context_->fail(Outcome::launch_failed, {ErrorCode::invalid_argument,
                                                   concat("cannot allocate ", bytes, " bytes")});
  }
  CUdeviceptr address = 0;
  const Result<void> allocated = begin(
      [&] {
        return DriverStatus{"cuMemAlloc",
                            context_->api().mem_alloc(&address, static_cast<std::size_t>(bytes))};
      },
      true);
  if (!allocated) {
    std::string message = concat("allocating ", bytes, " bytes: ", allocated.error().message);
    if (last_failure() == Outcome::out_of_memory) {
      const ContextScope scope(context_->api(), context_->context());
      message += concat("; ", report_memory(context_->api(), info_.identity.uuid));
    }
    return Error{allocated.error().code, std::move(message)};
  }
  return std::unique_ptr<DeviceBuffer>(std::make_unique<CudaBuffer>(context_, address, bytes));
}

Result<std::unique_ptr<DeviceBuffer>> CudaDevice::allocate_fenced(std::int64_t bytes) {
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  return FencedMemory::make(context_, bytes);
}

Result<void> CudaDevice::upload(DevicePointer to, std::span<const std::byte> from) {
  const Result<void> enqueued = enqueue_by([&] {
    return DriverStatus{"cuMemcpyHtoDAsync", context_->api().memcpy_htod_async(
                                                 to, from.data(), from.size(), context_->stream())};
  });
  return enqueued ? wait() : enqueued;
}

Result<void> CudaDevice::download(std::span<std::byte> to, DevicePointer from) {
  const Result<void> enqueued = enqueue_by([&] {
    return DriverStatus{"cuMemcpyDtoHAsync", context_->api().memcpy_dtoh_async(
                                                 to.data(), from, to.size(), context_->stream())};
  });
  return enqueued ? wait() : enqueued;
}

Result<void> CudaDevice::fill(DevicePointer to, std::uint8_t value, std::int64_t bytes) {
  return enqueue_by([&] {
    return DriverStatus{"cuMemsetD8Async",
                        context_->api().memset_d8_async(to, value, static_cast<std::size_t>(bytes),
                                                        context_->stream())};
  });
}

Result<std::shared_ptr<LoadedProgram>> CudaDevice::load(std::string_view cubin,
                                                        const ExecutionPlan& plan) {
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  DriverStatus status;
  const auto load = [&]() -> Result<std::unique_ptr<PreparedProgram>> {
    KW_ASSIGN(auto library, LoadedLibrary::load(context_->api(), cubin, status));
    return PreparedProgram::load(context_->api(), context_->device(), std::move(library),
                                 std::make_shared<const CompactPlan>(plan), status);
  };
  Result<std::unique_ptr<PreparedProgram>> program = load();
  if (!program) {
    // If `load` itself refused, no driver call was made. A call that failed may have lost the
    // device.
    if (Result<void> called = context_->check(status); called) {
      return context_->fail(Outcome::launch_failed, program.error());
    }
    return program.error();
  }
  return std::shared_ptr<LoadedProgram>(
      std::make_shared<CudaProgram>(context_, std::move(*program)));
}

Result<void> CudaDevice::enqueue(const LoadedProgram& program, const LaunchArguments& arguments,
                                 bool ahead) {
  const PreparedProgram& work = prepared(program);
  if (Result<void> fits = check_arguments(work.plan(), arguments); !fits) {
    return context_->fail(Outcome::launch_failed, fits.error());
  }
  const bool early = ahead ? work.can_start_early() : work.starts_early();
  return enqueue_by([&] { return work.enqueue(context_->stream(), arguments, early, ahead); });
}

Result<void> CudaDevice::enqueue_beside(const LoadedProgram& program,
                                        const LaunchArguments& arguments) {
  const PreparedProgram& work = prepared(program);
  if (Result<void> fits = check_arguments(work.plan(), arguments); !fits) {
    return context_->fail(Outcome::launch_failed, fits.error());
  }
  Result<CUstream> stream = nullptr;
  Result<void> made = begin([&] {
    stream = context_->side_stream();
    return DriverStatus{};
  });
  if (!made) return made;
  if (!stream) return stream.error();
  return enqueue_by([&] { return work.enqueue(*stream, arguments, work.starts_early()); });
}

Result<std::unique_ptr<Device::TimedUnits>> CudaDevice::prepare_timing(
    std::span<const WorkUnit> sets, int units) {
  if (sets.empty() || units < 1) {
    return context_->fail(Outcome::launch_failed, {ErrorCode::invalid_argument,
                                                   concat("nothing to time: ", units, " units of ",
                                                          sets.size(), " argument sets")});
  }
  std::vector<std::vector<SequenceStep>> prepared_sets;
  for (const WorkUnit& set : sets) {
    std::vector<SequenceStep>& steps = prepared_sets.emplace_back();
    for (const ProgramLaunch& launch : set) {
      const PreparedProgram& work = prepared(*launch.program);
      if (Result<void> fits = check_arguments(work.plan(), launch.arguments); !fits) {
        return context_->fail(Outcome::launch_failed, fits.error());
      }
      steps.push_back(
          {.program = &work, .arguments = launch.arguments, .early = work.starts_early()});
    }
  }
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  KW_ASSIGN(std::unique_ptr<TimedGraph> graph, TimedGraph::make(context_, prepared_sets, units));
  return std::unique_ptr<TimedUnits>(std::move(graph));
}

Result<Sample> CudaDevice::sample(TimedUnits& units) {
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  use_.queued(steady_seconds());
  auto sample = static_cast<TimedGraph&>(units).sample(gate_.get(), stamps_.get(), timer_check_);
  use_.done(steady_seconds());
  return sample;
}

Result<LaunchTimes> CudaDevice::time_launch_paths(const LoadedProgram& program,
                                                  std::span<const LaunchArguments> sets,
                                                  double seconds) {
  const PreparedProgram& work = prepared(program);
  for (const LaunchArguments& set : sets) {
    if (Result<void> fits = check_arguments(work.plan(), set); !fits) {
      return context_->fail(Outcome::launch_failed, fits.error());
    }
  }
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  std::vector<std::unique_ptr<LaunchGraph>> graphs;
  auto paths = time_launch_paths(work, sets, seconds, graphs);
  // Finds out what a failure means, and lets all work end that uses the graphs.
  const Result<void> done = lost() ? Result<void>() : wait();
  if (lost()) {
    for (const auto& graph : graphs) graph->abandon();
  }
  if (!done) return done.error();
  return paths;
}

Result<LaunchTimes> CudaDevice::time_launch_paths(
    const PreparedProgram& work, std::span<const LaunchArguments> sets, double seconds,
    std::vector<std::unique_ptr<LaunchGraph>>& graphs) {
  const DriverApi& api = context_->api();
  for (std::size_t i = 0; i <= sets.size(); ++i) {
    auto graph = LaunchGraph::make(
        api,
        {{.program = &work, .arguments = sets[i % sets.size()], .early = work.starts_early()}});
    if (!graph) return context_->fail(Outcome::launch_failed, graph.error());
    graphs.push_back(*std::move(graph));
  }
  KW_TRY(wait());
  const CUstream stream = context_->stream();
  const auto told = [this](const DriverStatus& status) { return context_->check(status); };
  const KernelCalls calls{
      .stream =
          [&](std::size_t set) {
            return told(work.enqueue(stream, sets[set], work.starts_early()));
          },
      .graph = [&](std::size_t set) { return told(graphs[set]->launch(stream)); },
      .rebind =
          [&](std::size_t set) {
            const std::array<ArgumentView, 1> views{ArgumentView(sets[set])};
            const DriverStatus bound = graphs.back()->rebind(views);
            return told(bound ? graphs.back()->launch(stream) : bound);
          }};
  use_.queued(steady_seconds());
  return time_kernel_paths(api, stream, calls, sets.size(),
                           {.rounds = kPathRounds, .seconds = seconds, .train_us = kPathTrainUs});
}

Result<CounterSet> CudaDevice::count(const LoadedProgram& program, const LaunchArguments& arguments,
                                     const std::function<Result<void>()>& before) {
  const ExecutionPlan& plan = prepared(program).plan();
  if (Result<void> fits = check_arguments(plan, arguments); !fits) {
    return context_->fail(Outcome::launch_failed, fits.error());
  }
  KW_TRY(context_->usable());
  const ContextScope scope(context_->api(), context_->context());
  KW_TRY(context_->check(scope.status()));
  if (profiler_ == nullptr) {
    KW_ASSIGN(const CuptiApi* api, load_profiler_());
    KW_ASSIGN(profiler_, RangeProfiler::open(*api, context_->context(), info_.identity.ordinal));
  }
  KW_ASSIGN(auto values, profiler_->count(plan.launches.size(), before,
                                          [&] { return run(program, arguments); }));
  CounterSet counted;
  counted.version = profiler_->version();
  counted.passes = profiler_->passes();
  for (std::size_t i = 0; i < values.size(); ++i) {
    counted.kernels.push_back(
        {plan.launches[i].kernel, plan.launches[i].grid, std::move(values[i])});
  }
  return counted;
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const DriverApi& api, int ordinal,
                                            const CudaDeviceOptions& options,
                                            LoadCupti load_profiler) {
  KW_ASSIGN(CudaDeviceInfo info, describe_device(api, ordinal));
  Result<std::shared_ptr<CudaContext>> context = CudaContext::open(api, ordinal, options.deadline);
  if (!context) return context.error();
  int has_memory_operations = 0;
  const DriverStatus status{
      "cuDeviceGetAttribute",
      api.device_get_attribute(&has_memory_operations,
                               CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                               (*context)->device())};
  if (!status) return driver_error(api, status);
  std::unique_ptr<StreamGate> gate;
  const ContextScope scope(api, (*context)->context());
  if (has_memory_operations != 0) {
    KW_ASSIGN(gate, StreamGate::make(*context));
  }
  std::unique_ptr<ClockStamps> stamps =
      ClockStamps::make(*context, static_cast<int>(info.profile.sm_count));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(*context), std::move(info),
                                                              std::move(gate), std::move(stamps),
                                                              std::move(load_profiler)));
}

Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, const CudaDeviceOptions& options) {
  KW_ASSIGN(const DriverApi* driver, load_driver());
  return open_device(*driver, ordinal, options);
}

Result<int> cuda_device_count() {
  KW_ASSIGN(const DriverApi* driver, load_driver());
  int count = 0;
  const DriverStatus status{"cuDeviceGetCount", driver->device_get_count(&count)};
  if (!status) return Error{ErrorCode::unavailable, driver_error(*driver, status).message};
  if (count == 0) return Error{ErrorCode::unavailable, "the driver shows no GPU"};
  return count;
}

Result<CudaDeviceInfo> describe_cuda_device(int ordinal) {
  KW_ASSIGN(const DriverApi* driver, load_driver());
  return describe_device(*driver, ordinal);
}

}  // namespace kernwright
