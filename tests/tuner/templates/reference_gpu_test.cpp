#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "compile/render.h"
#include "tests/model/template_names.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tests/tuner/templates/in_double/in_double.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

class ReferenceGpuTest : public GpuWorld, public ::testing::WithParamInterface<std::string> {
 protected:
  void check(const InDouble& form, const BoundProblem& problem);

  /// Returns whether a host computes the problem within a second.
  static bool is_small(const BoundProblem& problem) {
    std::int64_t elements = 0;
    for (const TensorShape& shape : problem.shapes()) elements += shape.elements();
    return elements <= 1'000'000 &&
           problem.operation().flops.evaluate(problem.scope()).value() <= 10'000'000;
  }
};

void ReferenceGpuTest::check(const InDouble& form, const BoundProblem& problem) {
  SCOPED_TRACE(problem.text());
  auto drawer = must(InputDrawer::make(*device_, *pool_, problem, *catalog_));
  auto sets = must(
      BufferSets::make(*device_, *ops_, problem.shapes(), L2State::warm, 5, {.drawer = drawer}));
  const std::vector<TensorShape>& shapes = sets.shapes();
  Arrays inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].role == TensorRole::out) continue;
    const auto raw = download<char>(sets.address(0, i), shapes[i].bytes());
    for (std::int64_t e = 0; e < shapes[i].elements(); ++e) {
      const std::int64_t place = shapes[i].layout().place(e);
      inputs[shapes[i].name].push_back(load_element(raw.data(), shapes[i].dtype, place));
    }
  }
  Dims dims;
  for (const Dim& dim : problem.operation().dims) {
    dims[dim.name] = static_cast<std::size_t>(problem.size(dim));
  }
  const Outputs expected = form.compute(inputs, dims, problem.problem());

  const ExecutionPlan plan = make_reference_plan(problem, device_->profile()).value();
  const CompileResult compiled =
      pool_->submit(render_reference(problem, *catalog_, device_->profile().sm_arch)).get();
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto program = must(device_->load(compiled.value()->bits, plan));
  LaunchArguments arguments;
  arguments.tensors = sets.addresses(0, plan.tensors);
  arguments.references.resize(plan.tensors.size());
  arguments.magnitudes.resize(plan.tensors.size());
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].role == TensorRole::in) continue;
    for (auto* place : {&arguments.references, &arguments.magnitudes}) {
      auto buffer = must(device_->allocate(plan.tensors[i].elements() * 8));
      (*place)[i] = buffer->address();
      buffers.push_back(std::move(buffer));
    }
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.checked_value);
  must(device_->run(*program, arguments));
  std::size_t compared = 0;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].role == TensorRole::in) continue;
    SCOPED_TRACE(plan.tensors[i].name);
    ASSERT_TRUE(expected.contains(plan.tensors[i].name));
    const Expected& output = expected.at(plan.tensors[i].name);
    ++compared;
    const auto count = static_cast<std::int64_t>(output.value.size());
    ASSERT_EQ(count, plan.tensors[i].elements());
    if (plan.tensors[i].dtype == DType::int32) {
      const auto got = download<std::int64_t>(arguments.references[i], count);
      for (std::size_t e = 0; e < got.size(); ++e) {
        ASSERT_EQ(static_cast<double>(got[e]), output.value[e]) << e;
      }
      continue;
    }
    const auto got = download<float>(arguments.references[i], count);
    const auto terms = download<float>(arguments.magnitudes[i], count);
    for (std::size_t e = 0; e < got.size(); ++e) {
      if (static_cast<double>(got[e]) == output.value[e])
        continue;  // an infinity is no distance off
      // fp32 accumulation, each element a share of its magnitude. A magnitude that has a sum as a
      // factor, as with a gate, is as far off as that sum where its terms cancel.
      ASSERT_NEAR(static_cast<double>(got[e]), output.value[e], 4e-6 * output.magnitude[e] + 1e-30)
          << e;
      ASSERT_NEAR(static_cast<double>(terms[e]), output.magnitude[e],
                  5e-3 * output.magnitude[e] + 1e-30)
          << e;
    }
  }
  EXPECT_EQ(compared, expected.size());
}

TEST_P(ReferenceGpuTest, AgreesWithDoublePrecision) {
  const InDouble* const form = InDouble::of(GetParam());
  ASSERT_TRUE(form) << "no double precision form of " << GetParam();
  int checked = 0;
  for (const OperationCase& one : operation(GetParam()).cases) {
    for (const std::string& text : one.few()) {
      const BoundProblem problem = bound(text);
      if (!is_small(problem) || !form->takes(problem.problem())) continue;
      ++checked;
      check(*form, problem);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(checked, 3);
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, ReferenceGpuTest, ::testing::ValuesIn(operation_names()),
                         template_test_name);

}  // namespace
}  // namespace kernwright
