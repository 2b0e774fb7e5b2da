#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kernwright/dtype.h>
#include <kernwright/export.h>
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

/// How the problem of a call followed from the sizes and strides of its tensors. It finds the
/// problems of calls that differ in these alone, in less than a microsecond. Immutable; cheap to
/// copy.
class KERNWRIGHT_API BindingPattern {
 public:
  struct Steps;
  explicit BindingPattern(std::shared_ptr<const Steps> steps) : steps_(std::move(steps)) {}

  /// Returns the problem of tensors with other sizes and strides, and sets `made` to the extents of
  /// the results, one after another. `numbers` are the extent and the strides of each tensor, in
  /// the order in which the tensors were given. Returns nullopt if these tensors follow another
  /// pattern, or none. Rules of the contract are not checked: a problem that they refuse has no
  /// kernel.
  std::optional<Problem> problem(const std::int64_t* numbers, std::size_t count,
                                 std::vector<std::int64_t>& made) const;

 private:
  std::shared_ptr<const Steps> steps_;
};

}  // namespace kernwright
