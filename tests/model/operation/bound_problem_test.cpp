#include "model/operation/bound_problem.h"

#include <gtest/gtest.h>

#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

TEST(BoundProblemTest, IsNormalisedWithItsNamesAndTensors) {
  const Operation operation = scale_operation();
  const auto bound = must(BoundProblem::bind(operation, operation.example));
  EXPECT_EQ(&bound.operation(), &operation);
  EXPECT_EQ(bound.text(), operation.normalize(operation.example)->text());
  EXPECT_EQ(bound.scope().find("m"), 64);
  EXPECT_EQ(bound.size(operation.dims[1]), 256);
  EXPECT_EQ(bound.dtype("dtype"), DType::bf16);
  EXPECT_EQ(bound.scalars()->size(), 1U);
  EXPECT_FALSE(bound.takes_function());
  const auto shapes = must(operation.tensor_shapes(bound.problem()));
  ASSERT_EQ(bound.shapes().size(), shapes.size());
  double bytes = 0;
  for (const TensorShape& shape : shapes) bytes += static_cast<double>(shape.bytes());
  EXPECT_EQ(bound.bytes(), bytes);
}

TEST(BoundProblemTest, WhatTheOperationRefusesIsNotBound) {
  const Operation operation = scale_operation();
  EXPECT_THAT(BoundProblem::bind(operation, Problem::make("scale", {{"m", -1}}, {})),
              Fails(ErrorCode::invalid_argument));
}

}  // namespace
}  // namespace kernwright
