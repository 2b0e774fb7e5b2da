#pragma once

#include <optional>
#include <span>
#include <string>

#include "model/operation/operation.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/tensor_binding.h>

namespace kernwright {

/// Derives the problem of `operation` from its tensors, by its contract alone. `options` has dims,
/// dtypes and flags that the tensors do not tell. Scalars that are named are those that the caller
/// passes, so the problem must have them.
///
/// With the flags known, each extent and pitch of a tensor is an equation, which is solved as soon
/// as one name in it is unknown. Flags follow from which tensors and scalars there are, and from
/// the layouts, their defaults first. In the end all equations must hold. Strides of axes of size 1
/// count for nothing. Errors: `invalid_argument`, which names the argument and both values.
Result<TensorBinding> bind_tensors(const Operation& operation, std::span<const GivenTensor> tensors,
                                   std::span<const std::string> scalars, const Problem& options);

/// Returns the pattern of the same; nullopt if no problem follows, or if it depends on more than
/// equations, such as a rule. Errors: as for `bind_tensors`.
Result<std::optional<BindingPattern>> find_pattern(const Operation& operation,
                                                   std::span<const GivenTensor> tensors,
                                                   std::span<const std::string> scalars,
                                                   const Problem& options);

}  // namespace kernwright
