#include "service/loaded_kernel.h"

#include <array>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

// Enough for every operation's contract; a launch keeps its arguments on the stack.
constexpr std::size_t kMaxArguments = 32;

std::vector<ArgumentInfo> describe_arguments(const ExecutionPlan& plan) {
  std::vector<ArgumentInfo> arguments;
  for (const TensorShape& tensor : plan.tensors) {
    arguments.push_back({.name = tensor.name,
                         .is_scalar = false,
                         .is_output = tensor.role != TensorRole::in,
                         .dtype = tensor.dtype,
                         .extent = tensor.extent,
                         .alignment = tensor.alignment});
  }
  for (const Scalar& scalar : plan.scalars) {
    arguments.push_back({.name = scalar.name,
                         .is_scalar = true,
                         .is_output = false,
                         .dtype = scalar.dtype,
                         .extent = {},
                         .alignment = 0});
  }
  return arguments;
}

}  // namespace

LoadedKernel::LoadedKernel(KernelSummary summary, ExecutionPlan plan,
                           std::unique_ptr<Launcher> launcher, Error why_not)
    : summary_(std::move(summary)),
      plan_(std::move(plan)),
      arguments_(describe_arguments(plan_)),
      workspace_bytes_(plan_.workspace_bytes()),
      launcher_(std::move(launcher)),
      why_not_(std::move(why_not)) {}

Error LoadedKernel::bad_argument(std::size_t position, std::string_view problem) const {
  return {ErrorCode::invalid_argument,
          concat("argument ", position, " of ", summary_.problem, " (",
                 position < arguments_.size() ? arguments_[position].name : std::string("none"),
                 "): ", problem)};
}

Result<void> LoadedKernel::launch(void* stream, const Arg* arguments, std::size_t count,
                                  void* workspace) const {
  if (!launcher_) return why_not_;
  const std::size_t tensor_count = plan_.tensors.size();
  const std::size_t scalar_count = plan_.scalars.size();
  if (count < tensor_count || count > tensor_count + scalar_count || tensor_count > kMaxArguments ||
      scalar_count > kMaxArguments) {
    return Error{ErrorCode::invalid_argument,
                 concat(summary_.problem, " takes ", tensor_count, " tensors and up to ",
                        scalar_count, " scalars; ", count, " arguments given")};
  }
  std::array<DevicePointer, kMaxArguments> tensors;
  std::array<double, kMaxArguments> scalars;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    if (arguments[i].is_scalar())
      return bad_argument(i, "a device pointer expected, a scalar given");
    const auto address = reinterpret_cast<DevicePointer>(arguments[i].pointer());
    const auto alignment = static_cast<DevicePointer>(plan_.tensors[i].alignment);
    if (address == 0) return bad_argument(i, "null pointer");
    if (address % alignment != 0) {
      return bad_argument(i, concat("must be aligned to ", alignment, " bytes, is at ...",
                                    address % 256, " modulo 256"));
    }
    tensors[i] = address;
  }
  for (std::size_t i = 0; i < scalar_count; ++i) {
    const std::size_t position = tensor_count + i;
    if (position >= count) {
      scalars[i] = plan_.scalars[i].default_value;
      continue;
    }
    if (!arguments[position].is_scalar()) {
      return bad_argument(position, "a scalar expected, a pointer given");
    }
    scalars[i] = arguments[position].scalar();
  }
  if (workspace_bytes_ > 0 && workspace == nullptr) {
    return Error{ErrorCode::invalid_argument, concat(summary_.problem, " needs a workspace of ",
                                                     workspace_bytes_, " bytes; none given")};
  }
  return launcher_->launch(stream, {tensors.data(), tensor_count}, {scalars.data(), scalar_count},
                           reinterpret_cast<DevicePointer>(workspace));
}

Result<void> Kernel::launch(void* stream, std::initializer_list<Arg> arguments,
                            void* workspace) const {
  return loaded_->launch(stream, arguments.begin(), arguments.size(), workspace);
}

Result<void> Kernel::launch(void* stream, const Arg* arguments, std::size_t count,
                            void* workspace) const {
  return loaded_->launch(stream, arguments, count, workspace);
}

std::int64_t Kernel::workspace_bytes() const { return loaded_->workspace_bytes(); }

const std::vector<ArgumentInfo>& Kernel::arguments() const { return loaded_->arguments(); }

const KernelSummary& Kernel::summary() const { return loaded_->summary(); }

Kernel Kernel::pin() const {
  Kernel pinned = *this;
  pinned.pinned_ = loaded_->shared_from_this();
  return pinned;
}

}  // namespace kernwright
