#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kernwright/dtype.h>
#include <kernwright/problem.h>

namespace kernwright {

/// A tensor of an operation as a caller has it.
struct GivenTensor {
  std::string name = {};            ///< the operation's
  std::string argument = {};        ///< the caller's name, for messages; empty: `name`
  std::optional<DType> dtype = {};  ///< nothing: it is not compared
  std::vector<std::int64_t> extent = {};
  std::vector<std::int64_t> strides = {};  ///< in elements; empty: they are not compared
  /// The caller's axis for each axis of the operation's tensor, if they are in another order; then
  /// an axis of the operation that is a product may be two of the caller's.
  std::vector<std::size_t> order = {};
};

/// A result that a caller must make: contiguous, and then with two axes swapped.
struct MadeTensor {
  std::string name = {};
  DType dtype = DType::fp32;
  std::vector<std::int64_t> extent = {};
  std::optional<std::pair<std::size_t, std::size_t>> swapped = {};
};

/// The problem that follows from tensors.
struct TensorBinding {
  /// Nothing if all results are empty, so that there is nothing to compute.
  std::optional<Problem> problem = {};
  /// Why a rule of the contract refuses the problem, though the tensors fit together.
  std::string refusal = {};
  std::vector<MadeTensor> made = {};        ///< the results that were not given, in order
  std::vector<std::string> unwritten = {};  ///< tensors that only other problems write
  std::vector<std::string> scalars = {};    ///< those that the problem has, in order
};

}  // namespace kernwright
