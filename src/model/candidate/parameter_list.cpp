#include "model/candidate/parameter_list.h"

#include <algorithm>

#include "model/operation/dtype_format.h"
#include "support/names.h"
#include "support/text.h"

namespace kernwright {
namespace {

std::string element_type(const Tensor& tensor) {
  if (tensor.dtype_variable.empty()) return std::string(dtype_format(tensor.fixed_dtype).cuda_type);
  return concat("kernwright::config::", tensor.dtype_variable, "_t");
}

std::string pointer(const Tensor& tensor, const LaunchSpec& launch, const BoundProblem& problem,
                    KernelUse use) {
  const std::string type = element_type(tensor) + "*";
  if (use != KernelUse::candidate) return use == KernelUse::reference ? "const " + type : type;
  const TensorShape* const shape = find_named(problem.shapes(), tensor.name);
  const bool is_input = (shape ? shape->role : tensor.role) == TensorRole::in;
  const std::vector<Tensor>& tensors = problem.operation().tensors;
  const bool shares_memory =
      launch.in_place || !tensor.in_place.empty() ||
      std::ranges::find(tensors, tensor.name, &Tensor::in_place) != tensors.end();
  return concat(is_input ? "const " : "", type, shares_memory ? "" : " __restrict__");
}

std::string parameter_type(const ArgumentSpec& argument, const LaunchSpec& launch,
                           const BoundProblem& problem, KernelUse use) {
  if (!argument.type.empty()) return argument.type;
  const Operation& operation = problem.operation();
  switch (argument.kind) {
    case ArgumentKind::tensor:
      return pointer(*find_named(operation.tensors, argument.name), launch, problem, use);
    case ArgumentKind::tensor_map:
      return "const __grid_constant__ kernwright::TensorMap";
    case ArgumentKind::workspace:
      return "unsigned char*";
    case ArgumentKind::scalar: {
      const Scalar* const scalar = find_named(operation.scalars, argument.name);
      return std::string(dtype_format(scalar ? scalar->dtype : InputKernels::kSeedDtype).cuda_type);
    }
    case ArgumentKind::int32:
    case ArgumentKind::early:
    case ArgumentKind::ahead:
      return "int";
    case ArgumentKind::int64:
      return "long long";
    case ArgumentKind::reference:
      return concat("kernwright::reference_t<",
                    element_type(*find_named(operation.tensors, argument.name)), ">*");
    case ArgumentKind::magnitude:
      return "float*";
  }
  return {};
}

}  // namespace

std::string parameter_list(const LaunchSpec& launch, const BoundProblem& problem, KernelUse use) {
  std::string list;
  for (const ArgumentSpec& argument : launch.arguments) {
    list += concat(list.empty() ? "" : ", ", parameter_type(argument, launch, problem, use), " ",
                   argument.parameter);
  }
  return list;
}

}  // namespace kernwright
