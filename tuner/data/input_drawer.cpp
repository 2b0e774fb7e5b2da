#include "tuner/data/input_drawer.h"

#include <utility>

#include "compile/render.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Bits of a seed that a scalar holds exactly.
constexpr int kSeedBits = 53;
constexpr std::uint8_t kLeftOut = 0xFF;

}  // namespace

Result<std::shared_ptr<const InputDrawer>> InputDrawer::make(Device& device, CompilePool& pool,
                                                             const BoundProblem& problem,
                                                             const Catalog& catalog) {
  const Operation& operation = problem.operation();
  if (!operation.input_kernels) return std::shared_ptr<const InputDrawer>();
  const auto failed = [&](const Error& error) {
    return Error{error.code, concat(operation.input_kernels->source_file, " of ", operation.name,
                                    ": ", error.message)};
  };
  const InputKernels& kernels = *operation.input_kernels;
  const DeviceProfile& profile = device.profile();
  const CompileResult compiled =
      pool.submit(render_input_kernels(problem, catalog, profile.sm_arch)).get();
  if (!compiled) return failed(compiled.error());

  std::shared_ptr<InputDrawer> drawer(new InputDrawer(device));
  for (const auto& [set, kernel] : {std::pair{InputSet::timing, kernels.timing},
                                    {InputSet::exact, kernels.exact},
                                    {InputSet::count, kernels.count},
                                    {InputSet::nan, kernels.nan}}) {
    if (kernel.empty()) continue;
    auto plan = make_input_plan(problem, kernel, profile);
    if (!plan) return failed(plan.error());
    drawer->tensors_ = plan->tensors;
    drawer->scalars_.clear();
    for (const Scalar& scalar : plan->scalars) drawer->scalars_.push_back(scalar.checked_value);
    auto program = device.load(compiled.value()->bits, *plan);
    if (!program) return failed(program.error());
    drawer->programs_[static_cast<std::size_t>(set)] = *std::move(program);
  }
  return std::shared_ptr<const InputDrawer>(std::move(drawer));
}

Result<void> InputDrawer::draw(InputSet set, const TensorShape& tensor, DevicePointer to,
                               std::uint64_t seed) const {
  KW_TRY(device_.fill(to, kLeftOut, tensor.bytes()));
  LaunchArguments arguments;
  for (const TensorShape& own : tensors_) {
    arguments.tensors.push_back(own.name == tensor.name ? to : 0);
  }
  arguments.scalars = scalars_;
  arguments.scalars.back() = static_cast<double>(seed >> (64 - kSeedBits));
  return device_.enqueue(*programs_[static_cast<std::size_t>(set)], arguments);
}

}  // namespace kernwright
