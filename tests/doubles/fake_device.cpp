#include "tests/doubles/fake_device.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "device/program/prepared_program.h"
#include "model/operation/dtype_format.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr double kFullClock = 1980;
constexpr std::int64_t kPage = 4096;
constexpr std::align_val_t kAlignment{kPage};

/// The allocations by address, which the device and its buffers share.
using Allocations = std::map<DevicePointer, std::int64_t>;

class FakeBuffer final : public DeviceBuffer {
 public:
  FakeBuffer(std::shared_ptr<Allocations> allocations, std::int64_t bytes)
      : allocations_(std::move(allocations)),
        memory_(::operator new(static_cast<std::size_t>(bytes), kAlignment)),
        bytes_(bytes) {
    allocations_->emplace(address(), bytes);
  }
  FakeBuffer(const FakeBuffer&) = delete;
  FakeBuffer& operator=(const FakeBuffer&) = delete;
  ~FakeBuffer() override {
    allocations_->erase(address());
    ::operator delete(memory_, kAlignment);
  }

  DevicePointer address() const override { return reinterpret_cast<DevicePointer>(memory_); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Allocations> allocations_;
  void* memory_;
  std::int64_t bytes_;
};

struct FakeProgram final : LoadedProgram {
  ExecutionPlan plan;
  FakeBehavior behavior;
  std::uint64_t text_hash = 0;
};

const FakeProgram& fake_of(const LoadedProgram& program) {
  return static_cast<const FakeProgram&>(program);
}

struct FakeUnits final : Device::TimedUnits {
  FakeUnits(std::vector<WorkUnit> kept, int count) : sets(std::move(kept)), units(count) {}
  std::vector<WorkUnit> sets;  ///< whose outputs nobody compares are left out
  int units;
  std::uint64_t samples = 0;
};

std::byte* host(DevicePointer address) { return reinterpret_cast<std::byte*>(address); }

/// The finaliser of splitmix64: a bijection that mixes all bits.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// A hash that depends only on the bytes; std::hash may differ between standard libraries.
std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

void fill_elements(DevicePointer to, DType dtype, std::int64_t elements, double value) {
  const std::uint64_t bits = encode(dtype, value);
  const auto bytes = static_cast<std::size_t>(bytes_of(1, dtype));
  for (std::int64_t i = 0; i < elements; ++i) {
    std::memcpy(host(to) + static_cast<std::size_t>(i) * bytes, &bits, bytes);
  }
}

/// Writes `value` into every output, and into every buffer of a reference kernel.
void fill_outputs(const ExecutionPlan& plan, const LaunchArguments& arguments, double value) {
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorShape& tensor = plan.tensors[i];
    if (tensor.role == TensorRole::in) continue;
    if (arguments.tensors[i] != 0) {
      fill_elements(arguments.tensors[i], tensor.dtype, tensor.elements(), value);
    }
    for (const auto* buffers : {&arguments.references, &arguments.magnitudes}) {
      if (i < buffers->size() && (*buffers)[i] != 0) {
        fill_elements((*buffers)[i], DType::fp32, tensor.elements(), value);
      }
    }
  }
}

class FakeDevice final : public Device {
 public:
  FakeDevice(FakeDeviceOptions options, ManualClock& clock)
      : options_(std::move(options)), clock_(clock) {}

  const DeviceProfile& profile() const override { return options_.profile; }
  const DeviceIdentity& identity() const override { return identity_; }
  bool lost() const override { return lost_; }
  Outcome last_failure() const override { return last_failure_; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(std::int64_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_fenced(std::int64_t bytes) override {
    return allocate((bytes + kPage - 1) / kPage * kPage);
  }
  Result<void> upload(DevicePointer to, std::span<const std::byte> from) override;
  Result<void> download(std::span<std::byte> to, DevicePointer from) override;
  Result<void> fill(DevicePointer to, std::uint8_t value, std::int64_t bytes) override;
  Result<std::shared_ptr<LoadedProgram>> load(std::string_view cubin,
                                              const ExecutionPlan& plan) override;
  Result<void> enqueue(const LoadedProgram& program, const LaunchArguments& arguments,
                       bool ahead) override;
  Result<void> enqueue_beside(const LoadedProgram& program,
                              const LaunchArguments& arguments) override {
    return enqueue(program, arguments, false);
  }
  Result<void> wait() override { return usable(); }
  Result<std::unique_ptr<TimedUnits>> prepare_timing(std::span<const WorkUnit> sets,
                                                     int units) override;
  Result<Sample> sample(TimedUnits& units) override;
  Result<LaunchTimes> time_launch_paths(const LoadedProgram& program,
                                        std::span<const LaunchArguments> sets,
                                        double seconds) override;
  Result<CounterSet> count(const LoadedProgram& program, const LaunchArguments& arguments,
                           const std::function<Result<void>()>& before) override;
  TimerCheck take_timer_check() override { return std::exchange(timer_check_, {}); }
  DeviceUse take_use() override { return use_.take(now_seconds()); }

 private:
  double now_seconds() const { return clock_.now_us() * 1e-6; }
  /// Advances the clock by the time of the work, which is done then.
  void work(double us) {
    use_.queued(now_seconds());
    clock_.advance(us);
    use_.done(now_seconds());
  }
  Error fail(Outcome outcome, Error error);
  Result<void> usable();
  /// Checks that all of [address, address + bytes) is in one allocation.
  Result<void> reach(DevicePointer address, std::int64_t bytes);
  Result<void> check(const ExecutionPlan& plan, const LaunchArguments& arguments);
  std::int64_t allocated_bytes() const {
    std::int64_t total = 0;
    for (const auto& [address, bytes] : *allocations_) total += bytes;
    return total;
  }
  /// Writes the results of a launch to memory.
  void apply(const FakeProgram& program, const LaunchArguments& arguments) const;
  /// The injected failure of a program, if it has one.
  Result<void> injected(const FakeProgram& program);

  FakeDeviceOptions options_;
  ManualClock& clock_;
  DeviceIdentity identity_{.uuid = "GPU-fake", .driver_version = "fake", .ordinal = 0};
  std::shared_ptr<Allocations> allocations_ = std::make_shared<Allocations>();
  bool lost_ = false;
  Outcome last_failure_ = Outcome::ok;
  TimerCheck timer_check_;
  UseMeter use_;
};

Error FakeDevice::fail(Outcome outcome, Error error) {
  last_failure_ = outcome;
  return error;
}

Result<void> FakeDevice::usable() {
  if (!lost_) return {};
  return fail(Outcome::device_lost, {ErrorCode::device, "the device was lost earlier"});
}

Result<void> FakeDevice::reach(DevicePointer address, std::int64_t bytes) {
  auto next = allocations_->upper_bound(address);
  if (next != allocations_->begin()) {
    const auto& [start, size] = *std::prev(next);
    const auto offset = static_cast<std::int64_t>(address - start);
    if (bytes >= 0 && offset <= size && bytes <= size - offset) return {};
  }
  return fail(Outcome::launch_failed,
              {ErrorCode::device,
               concat(bytes, " bytes at address ", address, " are not within one allocation")});
}

Result<std::unique_ptr<DeviceBuffer>> FakeDevice::allocate(std::int64_t bytes) {
  if (Result<void> alive = usable(); !alive) return alive.error();
  if (bytes <= 0) {
    return fail(Outcome::launch_failed,
                {ErrorCode::invalid_argument, concat("cannot allocate ", bytes, " bytes")});
  }
  const std::int64_t limit = options_.profile.memory_bytes;
  if (limit > 0 && bytes > limit - allocated_bytes()) {
    return fail(Outcome::out_of_memory,
                {ErrorCode::device, concat("allocating ", bytes, " bytes: ", allocated_bytes(),
                                           " of ", limit, " are in use")});
  }
  return std::unique_ptr<DeviceBuffer>(std::make_unique<FakeBuffer>(allocations_, bytes));
}

Result<void> FakeDevice::upload(DevicePointer to, std::span<const std::byte> from) {
  if (Result<void> alive = usable(); !alive) return alive;
  if (Result<void> inside = reach(to, std::ssize(from)); !inside) return inside;
  std::ranges::copy(from, host(to));
  return {};
}

Result<void> FakeDevice::download(std::span<std::byte> to, DevicePointer from) {
  if (Result<void> alive = usable(); !alive) return alive;
  if (Result<void> inside = reach(from, std::ssize(to)); !inside) return inside;
  std::copy_n(host(from), to.size(), to.begin());
  return {};
}

Result<void> FakeDevice::fill(DevicePointer to, std::uint8_t value, std::int64_t bytes) {
  if (Result<void> alive = usable(); !alive) return alive;
  if (Result<void> inside = reach(to, bytes); !inside) return inside;
  std::fill_n(host(to), bytes, std::byte{value});
  return {};
}

Result<std::shared_ptr<LoadedProgram>> FakeDevice::load(std::string_view cubin,
                                                        const ExecutionPlan& plan) {
  if (Result<void> alive = usable(); !alive) return alive.error();
  auto program = std::make_shared<FakeProgram>();
  program->plan = plan;
  if (options_.landscape) program->behavior = options_.landscape(cubin, plan);
  program->text_hash = hash_text(cubin);
  return std::shared_ptr<LoadedProgram>(std::move(program));
}

Result<void> FakeDevice::check(const ExecutionPlan& plan, const LaunchArguments& arguments) {
  if (Result<void> alive = usable(); !alive) return alive;
  if (Result<void> fits = check_arguments(plan, arguments); !fits) {
    return fail(Outcome::launch_failed, fits.error());
  }
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (arguments.tensors[i] == 0) continue;
    if (Result<void> inside = reach(arguments.tensors[i], plan.tensors[i].bytes()); !inside) {
      return inside;
    }
  }
  if (plan.workspace_bytes() > 0) return reach(arguments.workspace, plan.workspace_bytes());
  return {};
}

Result<void> FakeDevice::injected(const FakeProgram& program) {
  const Outcome outcome = program.behavior.outcome;
  if (outcome == Outcome::ok || outcome == Outcome::wrong_result) return {};
  lost_ = outcome != Outcome::out_of_memory;
  const ErrorCode code = outcome == Outcome::timed_out ? ErrorCode::timed_out : ErrorCode::device;
  return fail(outcome, {code, concat("injected failure: ", to_string(outcome))});
}

void FakeDevice::apply(const FakeProgram& program, const LaunchArguments& arguments) const {
  if (program.plan.tensors.empty()) return;
  DevicePointer workspace = arguments.workspace;
  for (const WorkspacePlan& part : program.plan.workspaces) {
    if (part.zeroed || part.kept_zero) std::fill_n(host(workspace), part.bytes, std::byte{0});
    workspace += static_cast<DevicePointer>((part.bytes + 255) / 256 * 256);
  }
  if (program.behavior.outcome == Outcome::wrong_result) {
    fill_outputs(program.plan, arguments, -77);
  } else if (options_.compute) {
    options_.compute(program.plan, arguments);
  } else {
    fill_outputs(program.plan, arguments, 1);
  }
}

Result<void> FakeDevice::enqueue(const LoadedProgram& program, const LaunchArguments& arguments,
                                 bool ahead) {
  const FakeProgram& fake = fake_of(program);
  if (Result<void> checked = check(fake.plan, arguments); !checked) return checked;
  work(fake.behavior.time_us);
  if (Result<void> failed = injected(fake); !failed) return failed;
  if (options_.faults && options_.faults(fake.plan, arguments)) {
    lost_ = true;
    return fail(Outcome::illegal_address, {ErrorCode::device, "injected failure: unmapped"});
  }
  apply(fake, arguments);
  if (ahead && fake.behavior.wrong_ahead) fill_outputs(fake.plan, arguments, -77);
  return {};
}

Result<std::unique_ptr<Device::TimedUnits>> FakeDevice::prepare_timing(
    std::span<const WorkUnit> sets, int units) {
  if (sets.empty() || units < 1) {
    return fail(Outcome::launch_failed,
                {ErrorCode::invalid_argument,
                 concat("nothing to time: ", units, " units of ", sets.size(), " argument sets")});
  }
  for (const WorkUnit& set : sets) {
    for (const ProgramLaunch& launch : set) {
      Result<void> checked = check(fake_of(*launch.program).plan, launch.arguments);
      if (!checked) return checked.error();
    }
  }
  const std::size_t used = std::min(sets.size(), static_cast<std::size_t>(units));
  std::vector<WorkUnit> kept{sets.front()};
  if (used > 1) kept.push_back(sets[used - 1]);
  return std::unique_ptr<TimedUnits>(std::make_unique<FakeUnits>(std::move(kept), units));
}

Result<Sample> FakeDevice::sample(TimedUnits& units) {
  auto& fake = static_cast<FakeUnits&>(units);
  if (Result<void> alive = usable(); !alive) return alive.error();
  double exact_us = 0;
  std::uint64_t text_hash = 0;
  for (const ProgramLaunch& launch : fake.sets.front()) {
    const FakeProgram& program = fake_of(*launch.program);
    if (Result<void> failed = injected(program); !failed) return failed.error();
    exact_us += program.behavior.time_us;
    text_hash ^= program.text_hash;
  }
  const std::uint64_t random = mix(options_.seed ^ mix(text_hash ^ fake.samples++));
  const double jitter = static_cast<double>(random >> 11) * 0x1p-52 - 1;  // [-1, 1)
  const double sm_mhz = options_.sm_mhz(now_seconds());
  const double time_us = exact_us * (1 + options_.noise * jitter) * kFullClock / sm_mhz;
  const double total_us = time_us * fake.units * fake.replays;
  work(total_us);
  timer_check_.add(total_us, total_us * (1 + options_.timer_error));
  for (const WorkUnit& set : fake.sets) {
    for (const ProgramLaunch& launch : set) apply(fake_of(*launch.program), launch.arguments);
  }
  return Sample{time_us, sm_mhz, now_seconds()};
}

Result<CounterSet> FakeDevice::count(const LoadedProgram& program, const LaunchArguments& arguments,
                                     const std::function<Result<void>()>& before) {
  if (Result<void> ready = before(); !ready) return ready.error();
  if (Result<void> ran = enqueue(program, arguments, false); !ran) return ran.error();
  if (!options_.counters) return Error{ErrorCode::unavailable, "no CUPTI here"};
  return options_.counters(fake_of(program).plan);
}

Result<LaunchTimes> FakeDevice::time_launch_paths(const LoadedProgram& program,
                                                  std::span<const LaunchArguments> sets,
                                                  double /*seconds*/) {
  for (const LaunchArguments& set : sets) {
    if (Result<void> done = enqueue(program, set, false); !done) return done.error();
  }
  // The times of an H200's host, see bench/results.
  const auto time = [&](KernelPath path, double host_us) {
    return PathTime{path, host_us, std::max(host_us, fake_of(program).behavior.time_us)};
  };
  return LaunchTimes{
      {time(KernelPath::stream, 3.2), time(KernelPath::graph, 1.2), time(KernelPath::rebind, 1.3)},
      KernelPath::graph};
}

}  // namespace

std::unique_ptr<Device> make_fake_device(FakeDeviceOptions options, ManualClock& clock) {
  return std::make_unique<FakeDevice>(std::move(options), clock);
}

}  // namespace kernwright
