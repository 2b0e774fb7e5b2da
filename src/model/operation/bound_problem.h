#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/expression/expression.h"
#include "model/operation/operation.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// A problem that its operation has accepted: normalised, with its names and the sizes of its
/// tensors. Immutable. The operation outlives it.
class BoundProblem {
 public:
  /// Normalises `written`. Errors: see `Operation::normalize` and `Operation::tensor_shapes`.
  static Result<BoundProblem> bind(const Operation& operation, const Problem& written);

  /// Binds the problem again with other sizes, with which it is accepted and normalised. Errors:
  /// see `Operation::tensor_shapes`.
  Result<BoundProblem> resized(Problem::Dims dims) const;

  const Operation& operation() const { return *operation_; }
  /// Returns the normalised problem.
  const Problem& problem() const { return problem_; }
  /// Returns the canonical text.
  std::string text() const { return problem_.text(); }
  /// See `Operation::scope`.
  const Scope& scope() const { return scope_; }
  /// Returns the shapes of all tensors that the problem has, in declared order.
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  /// Returns the bytes of all tensors together.
  double bytes() const { return total_bytes(shapes_); }

  std::int64_t size(const Dim& dim) const { return *scope_.find(dim.name); }
  /// Returns the dtype of type variable `name`.
  DType dtype(std::string_view name) const { return operation_->dtype(problem_, name); }
  /// Returns the formula of a formula flag.
  Formula formula(const Flag& flag) const { return operation_->formula(problem_, flag); }
  /// Returns whether it has a function.
  bool takes_function() const { return operation_->takes_function(problem_); }
  /// See `Operation::function`.
  const UserFunction* function(const Flag& flag) const {
    return operation_->function(problem_, flag);
  }
  /// See `Operation::present_scalars`.
  Result<std::vector<Scalar>> scalars() const { return operation_->present_scalars(scope_); }

 private:
  BoundProblem(const Operation& operation, Problem problem, Scope scope,
               std::vector<TensorShape> shapes)
      : operation_(&operation),
        problem_(std::move(problem)),
        scope_(std::move(scope)),
        shapes_(std::move(shapes)) {}

  const Operation* operation_;
  Problem problem_;
  Scope scope_;
  std::vector<TensorShape> shapes_;
};

}  // namespace kernwright
