#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/driver/driver.h"
#include "device/program/loaded_library.h"
#include "model/candidate/compact_plan.h"
#include <kernwright/result.h>

namespace kernwright {

/// A loaded cubin that is prepared for the plans of one form, with all that their programs have in
/// common: kernels are resolved and their attributes set, limits and parameter sizes are checked,
/// and the source of each parameter is known. Immutable, and bound to no context.
struct PreparedForm {
  static constexpr std::size_t kMaxArguments = 64;  ///< of one kernel, and its parameters
  static constexpr std::size_t kMaxTensorMaps = 8;  ///< of one plan
  static constexpr std::size_t kMaxAttributes = 3;  ///< cluster, cooperative, programmatic

  /// Errors: `invalid_argument` with both values if plan, library and GPU do not fit; `device` with
  /// the driver's message, and then `status` holds the call.
  static Result<std::shared_ptr<const PreparedForm>> make(const DriverApi& api, CUdevice device,
                                                          std::shared_ptr<LoadedLibrary> library,
                                                          std::shared_ptr<const PlanForm> plan,
                                                          DriverStatus& status);

  /// The place from which a parameter of a launch is read.
  enum class Source { address, numbers, tensors, references, magnitudes, tensor_maps, computed };
  static constexpr std::size_t kSources = 7;
  struct Parameter {
    Source source = Source::address;
    std::uintptr_t offset = 0;  ///< bytes; of `address` the address itself
  };
  /// A value that is computed at each launch.
  struct Computed {
    ArgumentKind kind;
    std::size_t index;  ///< of a scalar or a workspace, else the place of the number
    DType dtype;        ///< of a scalar
  };
  struct Launch {
    CUkernel kernel = nullptr;
    CUlaunchConfig config{};           ///< without grid, shared memory, stream and attributes
    std::size_t grid = 0;              ///< the place of its numbers
    unsigned int node_attributes = 0;  ///< those that a graph's node has too; programmatic follows
    bool programmatic = false;
    std::vector<Parameter> parameters;  ///< as many as the kernel declares
    std::vector<Computed> computed;
    std::array<CUlaunchAttribute, kMaxAttributes> attributes{};
  };

  /// Returns whether a plan of this form asks for more shared memory of launch `number` than the
  /// form's own, which the kernel is allowed.
  bool asks_for_more(std::size_t number, std::span<const std::int64_t> numbers) const {
    return numbers[launches[number].grid + PlanForm::kDynamicSmem] >
           plan->plan.launches[number].dynamic_smem;
  }

  const DriverApi& api;
  CUdevice device;
  std::shared_ptr<LoadedLibrary> library;
  std::shared_ptr<const PlanForm> plan;
  std::vector<Launch> launches;
  std::vector<std::size_t> zeroed;     ///< workspaces
  std::vector<std::size_t> kept_zero;  ///< workspaces

 private:
  PreparedForm(const DriverApi& with_api, CUdevice for_device,
               std::shared_ptr<LoadedLibrary> of_library, std::shared_ptr<const PlanForm> of_plan)
      : api(with_api),
        device(for_device),
        library(std::move(of_library)),
        plan(std::move(of_plan)) {}

  Result<void> prepare(DriverStatus& status);
  Result<void> prepare_launch(std::size_t number, DriverStatus& status);
  void prepare_parameters(const LaunchPlan& launch, Launch& prepared) const;
  Result<void> set_kernel_attributes(const LaunchPlan& launch, CUkernel kernel,
                                     DriverStatus& status) const;
};

}  // namespace kernwright
