#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "compile/render.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/buffer_sets.h"
#include "tuner/element.h"

namespace kernwright {
namespace {

/// Inputs and outputs of one problem in double, by tensor name.
using Arrays = std::map<std::string, std::vector<double>>;
struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;
};
using Dims = std::map<std::string, std::size_t>;

Expected matmul_in_double(const Arrays& in, const Dims& d) {
  const auto& a = in.at("a");
  const auto& b = in.at("b");
  Expected out;
  for (std::size_t i = 0; i < d.at("m"); ++i) {
    for (std::size_t j = 0; j < d.at("n"); ++j) {
      double sum = 0;
      double terms = 0;
      for (std::size_t l = 0; l < d.at("k"); ++l) {
        const double product = a[i * d.at("k") + l] * b[j * d.at("k") + l];
        sum += product;
        terms += std::fabs(product);
      }
      out.value.push_back(sum);
      out.magnitude.push_back(terms);
    }
  }
  return out;
}

Expected rmsnorm_in_double(const Arrays& in, const Dims& d) {
  const auto& x = in.at("x");
  const std::size_t columns = d.at("columns");
  Expected out;
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-6);
    for (std::size_t c = 0; c < columns; ++c) {
      const double y = x[r * columns + c] * scale * (in.contains("w") ? in.at("w")[c] : 1);
      out.value.push_back(y);
      out.magnitude.push_back(std::fabs(y));
    }
  }
  return out;
}

Expected vector_add_in_double(const Arrays& in, const Dims& d) {
  Expected out;
  for (std::size_t i = 0; i < d.at("n"); ++i) {
    out.value.push_back(in.at("a")[i] + in.at("b")[i]);
    out.magnitude.push_back(std::fabs(in.at("a")[i]) + std::fabs(in.at("b")[i]));
  }
  return out;
}

struct Case {
  std::string operation;
  std::function<Expected(const Arrays&, const Dims&)> compute;
  std::vector<std::string> problems;
};

std::vector<Case> cases() {
  return {{"matmul",
           matmul_in_double,
           {"matmul m=1 n=1 k=1 dtype=bf16", "matmul m=7 n=127 k=33 dtype=fp16",
            "matmul m=65 n=129 k=257 dtype=bf16", "matmul m=130 n=3 k=1000 dtype=bf16"}},
          {"rmsnorm",
           rmsnorm_in_double,
           {"rmsnorm rows=1 columns=1 dtype=fp32", "rmsnorm rows=7 columns=1000 dtype=bf16",
            "rmsnorm rows=3 columns=127 dtype=fp16 weight=none",
            "rmsnorm rows=5 columns=5001 dtype=fp32"}},
          {"vector_add",
           vector_add_in_double,
           {"vector_add n=1 dtype=bf16", "vector_add n=12345 dtype=fp16",
            "vector_add n=1001 dtype=fp32"}}};
}

class ReferenceGpuTest : public GpuWorld {
 protected:
  void check(const Case& item, std::string_view text);
};

void ReferenceGpuTest::check(const Case& item, std::string_view text) {
  SCOPED_TRACE(text);
  const Problem problem = normalized(text);
  const Operation& op = operation(item.operation);
  auto sets =
      BufferSets::make(*device_, *ops_, op.tensor_shapes(problem).value(), L2State::warm, 5);
  ASSERT_TRUE(sets) << sets.error().message;
  Arrays inputs;
  std::size_t output = 0;
  for (std::size_t i = 0; i < sets.value().shapes().size(); ++i) {
    const TensorShape& shape = sets.value().shapes()[i];
    if (shape.role == TensorRole::out) {
      output = i;
      continue;
    }
    const auto raw = download<char>(sets.value().address(0, i), shape.bytes());
    for (std::int64_t e = 0; e < shape.elements(); ++e) {
      inputs[shape.name].push_back(load_element(raw.data(), shape.dtype, e));
    }
  }
  Dims dims;
  for (const auto& [name, value] : problem.dims()) dims[name] = static_cast<std::size_t>(value);
  const Expected expected = item.compute(inputs, dims);

  const ExecutionPlan plan = make_reference_plan(op, problem, device_->profile()).value();
  const CompileResult compiled =
      pool_->submit(render_reference(op, problem, *catalog_, device_->profile().sm_arch)).get();
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto program = device_->load(compiled.value()->bits, plan);
  ASSERT_TRUE(program) << program.error().message;
  const auto elements = static_cast<std::int64_t>(expected.value.size());
  const auto value = device_->allocate(elements * 4);
  const auto magnitude = device_->allocate(elements * 4);
  ASSERT_TRUE(value && magnitude);
  LaunchArguments arguments;
  arguments.tensors = sets.value().addresses(0, plan.tensors);
  arguments.references.resize(plan.tensors.size());
  arguments.magnitudes.resize(plan.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].name != sets.value().shapes()[output].name) continue;
    arguments.references[i] = value.value()->address();
    arguments.magnitudes[i] = magnitude.value()->address();
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.default_value);
  const auto ran = device_->run(*program.value(), arguments);
  ASSERT_TRUE(ran) << ran.error().message;
  const auto got = download<float>(value.value()->address(), elements);
  const auto terms = download<float>(magnitude.value()->address(), elements);
  for (std::size_t i = 0; i < got.size(); ++i) {
    // fp32 accumulation, each element a share of its magnitude.
    ASSERT_NEAR(static_cast<double>(got[i]), expected.value[i],
                4e-6 * expected.magnitude[i] + 1e-30)
        << i;
    ASSERT_NEAR(static_cast<double>(terms[i]), expected.magnitude[i],
                1e-4 * expected.magnitude[i] + 1e-30)
        << i;
  }
}

TEST_F(ReferenceGpuTest, EveryOperationAgreesWithDoublePrecision) {
  std::set<std::string> covered;
  for (const Case& item : cases()) {
    covered.insert(item.operation);
    for (const std::string& text : item.problems) check(item, text);
  }
  for (const Operation& op : catalog_->operations()) {
    EXPECT_TRUE(covered.contains(op.name)) << "no double precision form of " << op.name;
  }
}

}  // namespace
}  // namespace kernwright
