#include "model/operation/bound_problem.h"

#include <cstddef>

#include "support/try.h"

namespace kernwright {

Result<BoundProblem> BoundProblem::bind(const Operation& operation, const Problem& written) {
  Scope scope;
  KW_ASSIGN(Problem problem, operation.normalize(written, scope));
  KW_ASSIGN(std::vector<TensorShape> shapes, operation.tensor_shapes(scope));
  return BoundProblem(operation, std::move(problem), std::move(scope), std::move(shapes));
}

Result<BoundProblem> BoundProblem::resized(Problem::Dims dims) const {
  Problem problem = Problem::make(problem_.operation(), std::move(dims), problem_.flags());
  const std::size_t sizes = operation_->dims.size() + operation_->derived.size();
  Scope scope = operation_->add_sizes(scope_.first(scope_.size() - sizes), problem);
  KW_ASSIGN(std::vector<TensorShape> shapes, operation_->tensor_shapes(scope));
  return BoundProblem(*operation_, std::move(problem), std::move(scope), std::move(shapes));
}

}  // namespace kernwright
