#include "launch/chain_plan.h"

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void view_all(std::vector<ArgumentView>& views, const std::vector<LaunchArguments>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) views[i] = ArgumentView(arguments[i]);
}

}  // namespace

void ChainWiring::add_step(LaunchArguments arguments, std::shared_ptr<const LoadedKernel> kernel) {
  arguments_.push_back(arguments);
  connected_.push_back(std::move(arguments));
  views_.emplace_back(arguments_.back());
  kernels_.push_back(std::move(kernel));
}

Result<void> ChainWiring::check(const void* const* parameters, std::size_t count) const {
  if (count != parameters_) {
    return Error{ErrorCode::invalid_argument,
                 concat("the chain has ", parameters_, " parameters; ", count, " given")};
  }
  for (const Connection& connection : connections_) {
    const auto address =
        reinterpret_cast<DevicePointer>(parameters[connection.parameter]) + connection.offset;
    const LoadedKernel& kernel = *kernels_[connection.step];
    Result<void> fits = parameters[connection.parameter]
                            ? kernel.check_tensor(connection.tensor, address)
                            : Error{ErrorCode::invalid_argument, "null pointer"};
    if (!fits) {
      return Error{fits.error().code,
                   concat("parameter ", connection.parameter, " of the chain, kernel ",
                          connection.step, ": ", fits.error().message)};
    }
  }
  return {};
}

std::span<const ArgumentView> ChainWiring::connect(const void* const* parameters) {
  for (const Connection& connection : connections_) {
    connected_[connection.step].tensors[connection.tensor] =
        reinterpret_cast<DevicePointer>(parameters[connection.parameter]) + connection.offset;
  }
  view_all(views_, connected_);
  return views_;
}

void ChainWiring::commit() {
  for (const Connection& connection : connections_) {
    arguments_[connection.step].tensors[connection.tensor] =
        connected_[connection.step].tensors[connection.tensor];
  }
}

std::span<const ArgumentView> ChainWiring::views() {
  view_all(views_, arguments_);
  return views_;
}

std::string ChainPlan::text() const { return concat("chain of ", steps.size(), " kernels"); }

Result<void> ChainPlan::check_kernels(std::size_t step) const {
  const auto& kernels = steps[step].kernels;
  if (kernels.empty()) {
    return Error{ErrorCode::invalid_argument, concat("step ", step, " of the chain has no kernel")};
  }
  const std::string& problem = kernels.front()->summary().problem;
  for (const auto& kernel : kernels) {
    if (!kernel->launcher()) return kernel->why_not();
    if (kernel->summary().problem != problem) {
      return Error{ErrorCode::invalid_argument,
                   concat("kernel ", step, " of the chain is for ", problem, "; ",
                          kernel->summary().problem, " cannot take its place")};
    }
  }
  return {};
}

Result<void> ChainPlan::check() const {
  if (steps.empty()) return Error{ErrorCode::invalid_argument, "the chain has no kernel"};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    KW_TRY(check_kernels(i));
    const LoadedKernel& kernel = *steps[i].kernels.front();
    const std::vector<ArgumentInfo>& expected = kernel.arguments();
    for (std::size_t j = 0; j < steps[i].arguments.size(); ++j) {
      if (!steps[i].arguments[j].is_slot()) continue;
      const ChainSlot& slot = steps[i].arguments[j].slot();
      const std::string where =
          concat("argument ", j, " of kernel ", i, " (", kernel.summary().problem, ")");
      const std::size_t count = slot.is_buffer ? buffers.size() : parameters.size();
      if (slot.index >= count) {
        return Error{ErrorCode::invalid_argument,
                     concat(where, " is ", slot.is_buffer ? "buffer " : "parameter ", slot.index,
                            "; the chain has ", count)};
      }
      if (!slot.is_buffer || j >= expected.size() || expected[j].is_scalar) continue;
      const std::int64_t bytes = kernel.launcher()->plan().tensors[j].bytes();
      if (slot.offset_bytes < 0 || slot.offset_bytes + bytes > buffers[slot.index]) {
        return Error{ErrorCode::invalid_argument,
                     concat(where, " needs ", bytes, " bytes from byte ", slot.offset_bytes,
                            " of buffer ", slot.index, ", which has ", buffers[slot.index])};
      }
    }
  }
  return {};
}

ChainPlan::Layout ChainPlan::layout() const {
  Layout layout;
  const auto place = [&](std::int64_t bytes) {
    const std::int64_t offset = layout.bytes;
    layout.bytes += aligned(bytes);
    return offset;
  };
  for (const std::int64_t bytes : buffers) layout.buffers.push_back(place(bytes));
  for (const Step& step : steps) {
    for (const auto& kernel : step.kernels) {
      if (layout.workspaces.contains(kernel.get())) continue;
      layout.workspaces.emplace(kernel.get(), place(kernel->workspace_bytes()));
    }
  }
  return layout;
}

Result<ChainWiring> ChainPlan::wire(const Layout& layout, DevicePointer memory) const {
  ChainWiring wiring;
  wiring.set_parameters(parameters.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LoadedKernel& kernel = *steps[i].kernels.front();
    std::vector<Arg> arguments;
    for (std::size_t j = 0; j < steps[i].arguments.size(); ++j) {
      const ChainArg& argument = steps[i].arguments[j];
      if (!argument.is_slot()) {
        arguments.push_back(argument.fixed());
        continue;
      }
      const ChainSlot& slot = argument.slot();
      const auto offset = static_cast<DevicePointer>(slot.offset_bytes);
      if (slot.is_buffer) {
        arguments.emplace_back(memory + static_cast<DevicePointer>(layout.buffers[slot.index]) +
                               offset);
        continue;
      }
      // No offset is added to a null parameter, so that it is refused.
      const auto address = reinterpret_cast<DevicePointer>(parameters[slot.index]);
      arguments.emplace_back(address == 0 ? address : address + offset);
      wiring.connect_to({.parameter = slot.index, .step = i, .tensor = j, .offset = offset});
    }
    BoundArguments bound;
    Result<void> fits = kernel.bind(arguments.data(), arguments.size(), bound);
    if (fits && kernel.checks_launches()) fits = kernel.check_memory(bound, 0);
    if (!fits) {
      return Error{fits.error().code,
                   concat("kernel ", i, " of the chain: ", fits.error().message)};
    }
    const ArgumentView view = bound.view(0);
    wiring.add_step({.tensors = {view.tensors.begin(), view.tensors.end()},
                     .scalars = {view.scalars.begin(), view.scalars.end()},
                     .workspace = 0,
                     .references = {},
                     .magnitudes = {}},
                    steps[i].kernels.front());
  }
  return wiring;
}

std::vector<std::vector<StepKernel>> ChainPlan::kernels(const Layout& layout,
                                                        DevicePointer memory) const {
  std::vector<std::vector<StepKernel>> kernels;
  for (const Step& step : steps) {
    std::vector<StepKernel>& made = kernels.emplace_back();
    for (const auto& kernel : step.kernels) {
      const auto offset = static_cast<DevicePointer>(layout.workspaces.at(kernel.get()));
      made.push_back({kernel, kernel->workspace_bytes() > 0 ? memory + offset : 0});
    }
  }
  return kernels;
}

}  // namespace kernwright
