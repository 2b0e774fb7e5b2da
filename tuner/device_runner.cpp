#include "tuner/device_runner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "support/text.h"
#include "tuner/buffer_sets.h"
#include "tuner/checker.h"

namespace kernwright {
namespace {

/// Launches in one graph; beyond it building the graph costs more than it times.
constexpr int kMaxUnits = 1024;
/// Launches of the first, rough timing that the length of a sample is derived from.
constexpr int kProbeUnits = 4;
/// Contents of outputs and workspace before a checked run: NaN in every float format, then a large
/// finite number. A result that depends on either is wrong.
constexpr std::uint8_t kPoisons[] = {0xFF, 0x7B};

class DeviceRunner final : public Runner {
 public:
  DeviceRunner(Device& device, DataOps& data_ops, BufferSets sets, Checker checker,
               double sample_us)
      : device_(device),
        data_ops_(data_ops),
        sets_(std::move(sets)),
        checker_(std::move(checker)),
        sample_us_(sample_us) {
    in_place_ = std::any_of(sets_.shapes().begin(), sets_.shapes().end(),
                            [](const TensorShape& s) { return s.role == TensorRole::inout; });
  }

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel& kernel) override;
  Result<Checked> check(Id id, CheckDepth depth) override;
  Result<Checked> check_after_timing(Id id) override;
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override;
  Result<double> launch_gap_us(Id id) override;
  Result<Audit> audit() override;
  void drop(Id id) override { loaded_.erase(id); }
  bool lost() const override { return device_.lost(); }

 private:
  struct Loaded {
    std::shared_ptr<LoadedProgram> program;
    std::vector<LaunchArguments> arguments;  ///< one per set
    std::int64_t workspace_bytes = 0;
    std::unique_ptr<Device::TimedUnits> units;
  };

  /// What the last failed call of the device says of the candidate that made it.
  Step failure(const Error& error) const {
    const Outcome outcome = device_.last_failure();
    return {outcome == Outcome::ok ? Outcome::launch_failed : outcome, error.message};
  }
  static Step verdict(const CheckReport& report) {
    if (report.mismatches == 0) return {};
    return {Outcome::wrong_result, concat(report.mismatches, " of ", report.elements,
                                          " elements beyond their bound, ", report.first_mismatch)};
  }

  /// Every launch shares one workspace, which only grows; true where it moved.
  Result<bool> reserve_workspace(std::int64_t bytes);
  Result<Checked> checked_run(const Loaded& loaded, std::uint8_t poison);
  Result<void> build_units(Loaded& loaded);
  Sampled take_sample(Loaded& loaded);

  Device& device_;
  DataOps& data_ops_;
  BufferSets sets_;
  Checker checker_;
  double sample_us_;
  bool in_place_ = false;
  std::unique_ptr<DeviceBuffer> workspace_;
  std::map<Id, Loaded> loaded_;
  Id next_id_ = 0;
};

Result<bool> DeviceRunner::reserve_workspace(std::int64_t bytes) {
  if (workspace_ != nullptr ? workspace_->bytes() >= bytes : bytes == 0) return false;
  auto buffer = device_.allocate(bytes);
  if (!buffer) return buffer.error();
  workspace_ = std::move(buffer).value();
  return true;
}

Result<Runner::Prepared> DeviceRunner::prepare(const Candidate& candidate,
                                               const CompiledKernel& kernel) {
  Prepared prepared;
  Loaded loaded;
  loaded.workspace_bytes = candidate.plan.workspace_bytes();
  auto moved = reserve_workspace(loaded.workspace_bytes);
  if (!moved) {
    prepared.step = {Outcome::out_of_memory, moved.error().message};
    return prepared;
  }
  if (moved.value()) {  // graphs built before hold the old address
    for (auto& [id, other] : loaded_) {
      other.units.reset();
      for (LaunchArguments& arguments : other.arguments) {
        arguments.workspace = workspace_->address();
      }
    }
  }
  auto program = device_.load(kernel.bits, candidate.plan);
  if (!program) {
    prepared.step = failure(program.error());
    return prepared;
  }
  loaded.program = std::move(program).value();
  for (int set = 0; set < sets_.count(); ++set) {
    LaunchArguments arguments;
    arguments.tensors = sets_.addresses(set, candidate.plan.tensors);
    for (const Scalar& scalar : candidate.plan.scalars) {
      arguments.scalars.push_back(scalar.default_value);
    }
    arguments.workspace = workspace_ != nullptr ? workspace_->address() : 0;
    loaded.arguments.push_back(std::move(arguments));
  }
  prepared.id = next_id_++;
  loaded_.emplace(prepared.id, std::move(loaded));
  return prepared;
}

Result<Runner::Checked> DeviceRunner::checked_run(const Loaded& loaded, std::uint8_t poison) {
  if (auto done = sets_.poison(device_, data_ops_, 0, poison); !done) return done.error();
  if (loaded.workspace_bytes > 0) {
    if (auto done = device_.fill(workspace_->address(), poison, loaded.workspace_bytes); !done) {
      return done.error();
    }
  }
  if (auto done = device_.run(*loaded.program, loaded.arguments.front()); !done) {
    return Checked{failure(done.error()), {}};
  }
  auto report = checker_.compare(device_, data_ops_, sets_);
  if (!report) return report.error();
  return Checked{verdict(report.value()), report.value()};
}

Result<Runner::Checked> DeviceRunner::check(Id id, CheckDepth) {
  Checked worst;
  for (const std::uint8_t poison : kPoisons) {
    auto checked = checked_run(loaded_.at(id), poison);
    if (!checked || checked.value().step.outcome != Outcome::ok) return checked;
    if (checked.value().report.max_error >= worst.report.max_error) {
      worst = std::move(checked).value();
    }
  }
  return worst;
}

Result<void> DeviceRunner::build_units(Loaded& loaded) {
  const int sets = sets_.count();
  auto probe = device_.prepare_timing(*loaded.program, loaded.arguments, kProbeUnits);
  if (!probe) return probe.error();
  auto unit = device_.sample(*probe.value());
  if (!unit) return unit.error();
  const double wanted = sample_us_ / std::max(unit.value().us, 0.1);
  const int rotations =
      std::max(1, static_cast<int>(std::lround(std::min<double>(wanted, kMaxUnits) / sets)));
  auto units = device_.prepare_timing(*loaded.program, loaded.arguments, rotations * sets);
  if (!units) return units.error();
  // The first replay pays for paging in the code.
  if (auto first = device_.sample(*units.value()); !first) return first.error();
  loaded.units = std::move(units).value();
  return {};
}

Runner::Sampled DeviceRunner::take_sample(Loaded& loaded) {
  if (loaded.units == nullptr) {
    if (auto done = build_units(loaded); !done) return {failure(done.error()), {}};
  }
  auto sample = device_.sample(*loaded.units);
  if (!sample) return {failure(sample.error()), {}};
  return {{}, sample.value()};
}

Result<Runner::Checked> DeviceRunner::check_after_timing(Id id) {
  Loaded& loaded = loaded_.at(id);
  if (in_place_) return checked_run(loaded, kPoisons[0]);  // the replays have changed the inputs
  if (auto done = sets_.poison(device_, data_ops_, 0, kPoisons[0]); !done) return done.error();
  if (const Sampled sampled = take_sample(loaded); sampled.step.outcome != Outcome::ok) {
    return Checked{sampled.step, {}};
  }
  auto report = checker_.compare(device_, data_ops_, sets_);
  if (!report) return report.error();
  Checked checked{verdict(report.value()), report.value()};
  if (checked.step.outcome != Outcome::ok) {
    checked.step.detail = concat("after timing: ", checked.step.detail);
  }
  return checked;
}

Result<std::vector<Runner::Sampled>> DeviceRunner::sample(std::span<const Id> order) {
  std::vector<Sampled> result;
  result.reserve(order.size());
  std::map<Id, Step> failed;
  for (const Id id : order) {
    if (const auto known = failed.find(id); known != failed.end()) {
      result.push_back({known->second, {}});
      continue;
    }
    result.push_back(take_sample(loaded_.at(id)));
    if (result.back().step.outcome != Outcome::ok) failed.emplace(id, result.back().step);
  }
  return result;
}

Result<double> DeviceRunner::launch_gap_us(Id) { return 0.0; }
Result<Audit> DeviceRunner::audit() { return Audit{}; }

}  // namespace

Result<std::unique_ptr<Runner>> open_device_runner(Device& device, DataOps& data_ops,
                                                   const Operation& operation,
                                                   const Problem& normalized,
                                                   const Catalog& catalog, CompilePool& pool,
                                                   const DeviceRunnerOptions& options) {
  if (options.policy.l2 == L2State::mixed || options.policy.launch == LaunchMode::stream) {
    return Error{ErrorCode::invalid_argument,
                 concat("the policy \"", options.policy.text(),
                        "\" cannot be measured: l2 must be cold or warm, launch graph")};
  }
  auto shapes = operation.tensor_shapes(normalized);
  if (!shapes) return shapes.error();
  auto sets = BufferSets::make(device, data_ops, std::move(shapes).value(),
                               options.policy.l2 == L2State::cold, options.seed);
  if (!sets) return sets.error();
  auto checker =
      Checker::make(device, data_ops, operation, normalized, catalog, pool, sets.value());
  if (!checker) return checker.error();
  return std::unique_ptr<Runner>(
      std::make_unique<DeviceRunner>(device, data_ops, std::move(sets).value(),
                                     std::move(checker).value(), options.sample_ms * 1000));
}

}  // namespace kernwright
