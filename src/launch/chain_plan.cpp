#include "launch/chain_plan.h"

#include "support/text.h"

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

Result<void> ChainPlan::check() const {
  if (steps.empty()) return Error{ErrorCode::invalid_argument, "the chain has no kernel"};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<ArgumentInfo>& expected = steps[i].kernel->arguments();
    if (!steps[i].kernel->launcher()) return steps[i].kernel->why_not();
    for (std::size_t j = 0; j < steps[i].arguments.size(); ++j) {
      if (!steps[i].arguments[j].is_slot()) continue;
      const ChainSlot& slot = steps[i].arguments[j].slot();
      const std::string where =
          concat("argument ", j, " of kernel ", i, " (", steps[i].kernel->summary().problem, ")");
      const std::size_t count = slot.is_buffer ? buffers.size() : parameters.size();
      if (slot.index >= count) {
        return Error{ErrorCode::invalid_argument,
                     concat(where, " is ", slot.is_buffer ? "buffer " : "parameter ", slot.index,
                            "; the chain has ", count)};
      }
      if (!slot.is_buffer || j >= expected.size() || expected[j].is_scalar) continue;
      const std::int64_t bytes = steps[i].kernel->launcher()->plan().tensors[j].bytes();
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
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t first = 0;
    while (steps[first].kernel != steps[i].kernel) ++first;
    layout.workspaces.push_back(first < i ? layout.workspaces[first]
                                          : place(steps[i].kernel->workspace_bytes()));
  }
  return layout;
}

Result<std::vector<SequenceStep>> ChainPlan::sequence(const Layout& layout, DevicePointer memory,
                                                      ChainWiring& wiring) const {
  std::vector<SequenceStep> sequence;
  wiring.set_parameters(parameters.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LoadedKernel& kernel = *steps[i].kernel;
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
    const std::int64_t workspace = kernel.workspace_bytes() > 0 ? layout.workspaces[i] : -1;
    const ArgumentView view =
        bound.view(workspace < 0 ? 0 : memory + static_cast<DevicePointer>(workspace));
    LaunchArguments launched{.tensors = {view.tensors.begin(), view.tensors.end()},
                             .scalars = {view.scalars.begin(), view.scalars.end()},
                             .workspace = view.workspace,
                             .references = {},
                             .magnitudes = {}};
    wiring.add_step(launched, steps[i].kernel);
    const PreparedProgram& program = kernel.launcher()->program();
    sequence.push_back({&program, std::move(launched), i > 0 && program.can_start_early()});
  }
  return sequence;
}

}  // namespace kernwright
