#include "model/operation/bound_problem.h"

#include "support/try.h"

namespace kernwright {

Result<BoundProblem> BoundProblem::bind(const Operation& operation, const Problem& written) {
  KW_ASSIGN(Problem problem, operation.normalize(written));
  KW_ASSIGN(std::vector<TensorShape> shapes, operation.tensor_shapes(problem));
  Scope scope = operation.scope(problem);
  return BoundProblem(operation, std::move(problem), std::move(scope), std::move(shapes));
}

double BoundProblem::bytes() const {
  double bytes = 0;
  for (const TensorShape& shape : shapes_) bytes += static_cast<double>(shape.bytes());
  return bytes;
}

}  // namespace kernwright
