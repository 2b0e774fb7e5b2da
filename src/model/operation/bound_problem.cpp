#include "model/operation/bound_problem.h"

#include "support/try.h"

namespace kernwright {

Result<BoundProblem> BoundProblem::bind(const Operation& operation, const Problem& written) {
  Scope scope;
  KW_ASSIGN(Problem problem, operation.normalize(written, scope));
  KW_ASSIGN(std::vector<TensorShape> shapes, operation.tensor_shapes(problem, scope));
  return BoundProblem(operation, std::move(problem), std::move(scope), std::move(shapes));
}

Result<BoundProblem> BoundProblem::resized(Problem::Dims dims) const {
  Problem problem = Problem::make(problem_.operation(), std::move(dims), problem_.flags());
  Scope scope = operation_->scope(problem);
  KW_ASSIGN(std::vector<TensorShape> shapes, operation_->tensor_shapes(problem, scope));
  return BoundProblem(*operation_, std::move(problem), std::move(scope), std::move(shapes));
}

double BoundProblem::bytes() const {
  double bytes = 0;
  for (const TensorShape& shape : shapes_) bytes += static_cast<double>(shape.bytes());
  return bytes;
}

}  // namespace kernwright
