#include "tuner/measure/unfused_comparison.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/check/checker.h"
#include "tuner/data/alignment.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/element.h"
#include "tuner/data/probe_kernels.h"
#include "tuner/measure/unit_sampler.h"

namespace kernwright {
namespace {

constexpr int kRounds = 31;
constexpr double kSampleUs = 1500;
constexpr std::uint8_t kNotANumber = 0xFF;
/// The error from one rounding in between, in units of the magnitude. An activation multiplies an
/// error of its argument by at most 3 (gelu_tanh far below 0), and its result is rounded once more.
constexpr double kRoundingsInBetween = 4;
/// A bound for factors of a value in between, which are drawn from a normal distribution up to 5.8.
constexpr double kLargestFactor = 6;

/// Both sides on one device, with their programs loaded and their arguments placed.
class Arena {
 public:
  Arena(Device& device, DataOps& data_ops, const UnfusedMatch& match, BufferSets sets,
        Checker checker)
      : device_(device),
        data_ops_(data_ops),
        match_(match),
        sets_(std::move(sets)),
        checker_(std::move(checker)) {}

  /// Allocates the tensors between the kernels, for each set, and the workspaces, which kernels
  /// that follow each other share.
  Result<void> allocate() {
    std::int64_t bytes = 0;
    for (std::size_t i = match_.form.fused_tensors; i < match_.form.tensors.size(); ++i) {
      offsets_.push_back(bytes);
      bytes += aligned(match_.form.tensors[i].bytes());
    }
    set_bytes_ = bytes;
    std::int64_t workspace = match_.fused.candidate.plan.workspace_bytes();
    for (const ProvenKernel& kernel : match_.kernels) {
      workspace = std::max(workspace, kernel.candidate.plan.workspace_bytes());
    }
    KW_ASSIGN(memory_, device_.allocate(
                           std::max(aligned(workspace) + set_bytes_ * sets_.count(), kAlignment)));
    between_ = memory_->address() + static_cast<DevicePointer>(aligned(workspace));
    return device_.fill(memory_->address(), kNotANumber, memory_->bytes());
  }

  Result<void> load() {
    KW_TRY(load(match_.fused, nullptr, fused_));
    for (std::size_t i = 0; i < match_.kernels.size(); ++i) {
      auto loaded = load(match_.kernels[i], &match_.form.kernels[i], unfused_);
      if (!loaded) return loaded;
    }
    return {};
  }

  TimedWork& fused() { return fused_; }
  TimedWork& unfused() { return unfused_; }
  const BufferSets& sets() const { return sets_; }

  /// Runs a side once on poisoned outputs and compares them with the reference.
  Result<CheckReport> check(const TimedWork& work, std::string_view name) {
    KW_TRY(sets_.poison(device_, data_ops_, 0, kNotANumber));
    for (const ProgramLaunch& launch : work.sets.front()) {
      if (auto done = device_.enqueue(*launch.program, launch.arguments); !done) {
        return Error{done.error().code, concat(name, ": ", done.error().message)};
      }
    }
    auto report = checker_.compare(device_, data_ops_, sets_);
    if (report && report->mismatches != 0) {
      return Error{ErrorCode::internal,
                   concat(name, " gives another result than the reference: ", report->mismatches,
                          " of ", report->elements, " elements beyond the bound, the first ",
                          report->first_mismatch)};
    }
    return report;
  }

  /// Widens the bound by the roundings between the kernels.
  void widen_bound() {
    double units = 0;
    double absolute = 0;
    for (std::size_t i = match_.form.fused_tensors; i < match_.form.tensors.size(); ++i) {
      const DType dtype = match_.form.tensors[i].dtype;
      units += kRoundingsInBetween * rounding_unit(dtype);
      absolute += kLargestFactor * error_floor(dtype);
    }
    checker_.widen(units, absolute);
  }

 private:
  /// Adds a kernel to every unit of `work`. For the fused kernel `wired` is null.
  Result<void> load(const ProvenKernel& compiled, const UnfusedKernel* wired, TimedWork& work) {
    const ExecutionPlan& plan = compiled.candidate.plan;
    auto program = device_.load(compiled.kernel->bits, plan);
    if (!program) {
      return Error{program.error().code,
                   concat(compiled.candidate.problem->text(), ": ", program.error().message)};
    }
    programs_.push_back(std::move(program).value());
    LaunchArguments arguments;
    arguments.workspace = plan.workspace_bytes() > 0 ? memory_->address() : 0;
    if (wired) {
      arguments.scalars = wired->scalars;
    } else {
      for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.checked_value);
    }
    work.sets.resize(static_cast<std::size_t>(sets_.count()));
    for (int set = 0; set < sets_.count(); ++set) {
      arguments.tensors.clear();
      for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        arguments.tensors.push_back(address(set, wired ? wired->tensors[i] : i));
      }
      work.sets[static_cast<std::size_t>(set)].push_back({programs_.back().get(), arguments});
    }
    return {};
  }

  /// The address of a tensor of the form.
  DevicePointer address(int set, std::size_t tensor) const {
    if (tensor < match_.form.fused_tensors) return sets_.address(set, tensor);
    return between_ + static_cast<DevicePointer>(set * set_bytes_ +
                                                 offsets_[tensor - match_.form.fused_tensors]);
  }

  Device& device_;
  DataOps& data_ops_;
  const UnfusedMatch& match_;
  BufferSets sets_;
  Checker checker_;
  std::vector<std::int64_t> offsets_;  ///< of the tensors between the kernels, in a set
  std::int64_t set_bytes_ = 0;
  std::unique_ptr<DeviceBuffer> memory_;
  DevicePointer between_ = 0;
  std::vector<std::shared_ptr<LoadedProgram>> programs_;
  TimedWork fused_;  ///< its graphs are destroyed before the programs
  TimedWork unfused_;
};

}  // namespace

Result<UnfusedComparison> compare_unfused(Device& device, DataOps& data_ops, const Catalog& catalog,
                                          CompilePool& pool, const UnfusedMatch& match, L2State l2,
                                          std::uint64_t seed) {
  const Candidate& fused = match.fused.candidate;
  const auto probe_bits = pool.submit(ProbeKernels::request(device.profile().sm_arch));
  KW_ASSIGN(auto drawer, InputDrawer::make(device, pool, *fused.problem, catalog));
  KW_ASSIGN(auto sets, BufferSets::make(device, data_ops, fused.plan.tensors, l2, seed,
                                        {.drawer = std::move(drawer)}));
  KW_ASSIGN(auto checker, Checker::make(device, data_ops, *fused.problem, catalog, pool, sets));
  KW_ASSIGN(auto probes, ProbeKernels::make(device, probe_bits.get()));
  Arena arena(device, data_ops, match, std::move(sets), std::move(checker));
  KW_TRY(arena.allocate());
  KW_TRY(arena.load());

  UnfusedComparison result;
  const std::string name = fused.problem->text();
  KW_ASSIGN(result.fused.check, arena.check(arena.fused(), name));
  arena.widen_bound();
  KW_ASSIGN(result.unfused.check,
            arena.check(arena.unfused(), concat("the unfused form of ", name)));

  UnitSampler sampler(device, data_ops, arena.sets(), probes, l2, kSampleUs);
  std::array<std::pair<TimedWork*, Measurement*>, 2> sides{
      std::pair{&arena.fused(), &result.fused.times},
      std::pair{&arena.unfused(), &result.unfused.times}};
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [work, times] : sides) {
      KW_ASSIGN(const auto sample, sampler.sample(*work));
      times->samples_us.push_back(sample.us);
    }
    std::swap(sides[0], sides[1]);
  }
  return result;
}

}  // namespace kernwright
