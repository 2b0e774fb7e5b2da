#include "device/program/prepared_program.h"
#include "support/text.h"

namespace kernwright {
namespace {

Error wrong_count(std::string_view what, std::size_t expected, std::size_t given) {
  return {ErrorCode::invalid_argument,
          concat("the plan takes ", expected, " ", what, "; ", given, " given")};
}

bool uses(const ExecutionPlan& plan, ArgumentKind kind) {
  for (const LaunchPlan& launch : plan.launches) {
    for (const ArgumentPlan& argument : launch.arguments) {
      if (argument.kind == kind) return true;
    }
  }
  return false;
}

}  // namespace

Result<void> check_arguments(const ExecutionPlan& plan, const ArgumentView& arguments) {
  const std::size_t count = plan.tensors.size();
  if (arguments.tensors.size() != count) {
    return wrong_count("tensors", count, arguments.tensors.size());
  }
  if (arguments.scalars.size() != plan.scalars.size()) {
    return wrong_count("scalars", plan.scalars.size(), arguments.scalars.size());
  }
  if (arguments.references.size() != count && uses(plan, ArgumentKind::reference)) {
    return wrong_count("references", count, arguments.references.size());
  }
  if (arguments.magnitudes.size() != count && uses(plan, ArgumentKind::magnitude)) {
    return wrong_count("magnitudes", count, arguments.magnitudes.size());
  }
  for (std::size_t i = 0; i < count; ++i) {
    const TensorShape& tensor = plan.tensors[i];
    const auto alignment = static_cast<DevicePointer>(tensor.alignment);
    if (alignment > 0 && arguments.tensors[i] % alignment != 0) {
      return Error{ErrorCode::invalid_argument,
                   concat("tensor ", tensor.name, " is at address ", arguments.tensors[i],
                          ", which is not aligned to ", alignment, " bytes")};
    }
  }
  if (arguments.workspace == 0 && plan.workspace_bytes() > 0) {
    return Error{ErrorCode::invalid_argument, concat("the plan needs a workspace of ",
                                                     plan.workspace_bytes(), " bytes; none given")};
  }
  return {};
}

}  // namespace kernwright
