#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <numbers>
#include <set>

#include "compile/render.h"
#include "tests/tuner/gpu_world.h"
#include "tests/tuner/templates/in_double.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

double activate(std::string_view activation, double x) {
  if (activation == "gelu_tanh") {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
  if (activation == "gelu_erf") return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  if (activation == "silu") return x / (1 + std::exp(-x));
  return x;
}

/// A sum of products, and the sum of their absolute values.
struct Sum {
  double value = 0;
  double terms = 0;
};

Outputs matmul_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const auto& a = in.at("a");
  const auto& b = in.at("b");
  const std::size_t m = d.at("m"), n = d.at("n"), k = d.at("k"), n_kv = d.at("n_kv");
  const bool split = flag(problem, "split") == "qkv";
  const bool kn = flag(problem, "b_layout") == "kn";
  const bool gated = flag(problem, "gate") == "stacked";
  const std::string activation = flag(problem, "activation");
  const double alpha = flag(problem, "scaling") == "alpha" ? 0.5 : 1;
  const double beta = flag(problem, "residual") == "scaled" ? 0.5 : 1;
  const double steepest = activation.empty() ? 1 : 1.13;
  const bool tf32 = flag(problem, "tf32") == "allow";
  const double root = std::sqrt(static_cast<double>(k));
  const double unit = 8 * root * (tf32 ? 0x1p-24 : 0x1p-22);
  const std::size_t rows_b = gated ? 2 * n : n;
  // Returns the sum for product i / m of a batch.
  const auto sum_of = [&](std::size_t i, std::size_t j) {
    const double* const own_b = b.data() + i / m * k * rows_b;
    Sum sum;
    for (std::size_t l = 0; l < k; ++l) {
      const double product = alpha * a[i * k + l] * (kn ? own_b[l * rows_b + j] : own_b[j * k + l]);
      sum.value += product;
      sum.terms += std::fabs(product);
    }
    if (tf32) {  // each product may be cut off by 2^-9 of it, in tensor cores that add as ever
      const double cut =
          std::min(0x1p-9 * sum.terms, 0x1p-8 / root * sum.terms + 0x1p-9 * std::fabs(sum.value));
      sum.terms = 4 * sum.terms + cut / unit;
    }
    return sum;
  };
  Outputs out;
  for (std::size_t i = 0; i < d.at("batch") * m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const Sum sum = sum_of(i, j);
      if (gated) {
        const Sum up = sum_of(i, n + j);
        const double gate = activate(activation, sum.value);
        out["d"].add(gate * up.value,
                     std::fabs(gate) * up.terms +
                         steepest * sum.terms * (std::fabs(up.value) + unit * up.terms));
        continue;
      }
      const double shift = in.contains("bias") ? in.at("bias")[j] : 0;
      const double added = in.contains("residual") ? in.at("residual")[i * n + j] : 0;
      const bool in_v = split && j >= n - n_kv, in_k = split && j >= n - 2 * n_kv && !in_v;
      out[in_v   ? "d_v"
          : in_k ? "d_k"
                 : "d"]
          .add(activate(activation, sum.value + shift) + beta * added,
               steepest * (sum.terms + std::fabs(shift)) + beta * std::fabs(added));
    }
  }
  return out;
}

/// x, or its sum with the residual as a tensor of `dtype` holds it; the sum goes to `out`.
std::vector<double> with_residual(const Arrays& in, DType dtype, Outputs& out) {
  std::vector<double> x = in.at("x");
  if (!in.contains("r")) return x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double r = in.at("r")[i];
    out["sum"].add(x[i] + r, std::fabs(x[i]) + std::fabs(r));
    std::array<char, 8> stored{};
    store_element(stored.data(), dtype, 0, static_cast<float>(x[i] + r));
    x[i] = load_element(stored.data(), dtype, 0);
  }
  return x;
}

Outputs rmsnorm_in_double(const Arrays& in, const Dims& d, DType dtype) {
  Outputs out;
  const std::vector<double> x = with_residual(in, dtype, out);
  const std::size_t columns = d.at("columns");
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-6);
    for (std::size_t c = 0; c < columns; ++c) {
      const double y = x[r * columns + c] * scale * (in.contains("w") ? in.at("w")[c] : 1);
      out["y"].add(y, std::fabs(y));
    }
  }
  return out;
}

Outputs layernorm_in_double(const Arrays& in, const Dims& d, DType dtype) {
  Outputs out;
  const std::vector<double> x = with_residual(in, dtype, out);
  const std::size_t columns = d.at("columns");
  const auto count = static_cast<double>(columns);
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    const double* const row = x.data() + r * columns;
    double mean = 0;
    double terms = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      mean += row[c] / count;
      terms += std::fabs(row[c]) / count;
    }
    double variance = 0;
    for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / count;
    for (std::size_t c = 0; c < columns; ++c) {
      const double factor = (in.contains("w") ? in.at("w")[c] : 1) / std::sqrt(variance + 1e-5);
      const double shift = in.contains("b") ? in.at("b")[c] : 0;
      out["y"].add((row[c] - mean) * factor + shift,
                   (std::fabs(row[c]) + terms) * std::fabs(factor) + std::fabs(shift));
    }
  }
  return out;
}

/// With a causal mask the rows are taken for squares of scores, one after another.
Outputs softmax_in_double(const Arrays& in, const Dims& d, bool causal) {
  Outputs out;
  const std::size_t columns = d.at("columns");
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    const std::size_t seen = causal ? r % columns + 1 : columns;
    std::vector<double> v(seen);
    for (std::size_t c = 0; c < seen; ++c) {
      v[c] = in.at("x")[r * columns + c];
      if (in.contains("bias")) v[c] += in.at("bias")[r * columns + c];
    }
    const double most = *std::max_element(v.begin(), v.end());
    double sum = 0;
    for (const double one : v) sum += std::exp(one - most);
    for (std::size_t c = 0; c < columns; ++c) {
      const double y = c < seen ? std::exp(v[c] - most) / sum : 0;
      out["y"].add(y, c < seen ? y * (1 + std::fabs(v[c]) + std::fabs(most)) : 0);
    }
  }
  return out;
}

Outputs reduce_in_double(const Arrays& in, const Dims& d, std::string_view kind, bool whole) {
  Outputs out;
  const auto& x = in.at("x");
  const std::size_t size = whole ? x.size() : d.at("columns");
  for (std::size_t first = 0; first < x.size(); first += size) {
    double sum = 0;
    double terms = 0;
    double most = x[first];
    for (std::size_t i = first; i < first + size; ++i) {
      const double term = kind == "sum_squares" ? x[i] * x[i] : x[i];
      sum += term;
      terms += std::fabs(term);
      most = std::max(most, x[i]);
    }
    const double count = kind == "mean" ? static_cast<double>(size) : 1;
    if (kind == "max") {
      out["y"].add(most, std::fabs(most));
    } else {
      out["y"].add(sum / count, terms / count);
    }
  }
  return out;
}

Outputs vector_add_in_double(const Arrays& in, const Dims& d) {
  Outputs out;
  for (std::size_t i = 0; i < d.at("n"); ++i) {
    const double a = in.at("a")[i];
    const double b = in.at("b")[i];
    out["c"].add(a + b, std::fabs(a) + std::fabs(b));
  }
  return out;
}

struct Case {
  std::string operation;
  std::function<Outputs(const Arrays&, const Dims&, const Problem&)> compute;
  std::vector<std::string> problems;
};

DType dtype_of(const Problem& problem) { return parse_dtype(flag(problem, "dtype")).value(); }

std::vector<Case> cases() {
  using In = const Arrays&;
  using Sizes = const Dims&;
  using Of = const Problem&;
  return {
      {"matmul",
       matmul_in_double,
       {"matmul m=1 n=1 k=1 dtype=bf16",
        "matmul m=7 n=127 k=33 dtype=fp16",
        "matmul m=65 n=129 k=257 dtype=bf16",
        "matmul m=130 n=3 k=1000 dtype=bf16",
        "matmul m=7 n=127 k=33 dtype=fp16 bias=column",
        "matmul m=65 n=129 k=257 dtype=bf16 bias=column residual=add",
        "matmul m=7 n=127 k=3 dtype=fp16 activation=gelu_tanh",
        "matmul m=65 n=129 k=257 dtype=bf16 bias=column activation=gelu_tanh residual=add",
        "matmul m=7 n=127 k=3 dtype=fp16 bias=column activation=gelu_erf",
        "matmul m=7 n=127 k=3 dtype=fp16 activation=silu residual=add",
        "matmul m=65 n=129 k=257 dtype=bf16 b_layout=kn",
        "matmul m=7 n=33 k=65 dtype=bf16 scaling=alpha bias=column residual=scaled out=fp32",
        "matmul m=7 n=127 k=33 dtype=fp16 gate=stacked",
        "matmul m=65 n=129 k=257 dtype=bf16 activation=silu gate=stacked",
        "matmul m=7 n=127 k=3 dtype=fp16 activation=gelu_tanh gate=stacked b_layout=kn",
        "matmul m=70 n=3 k=65 dtype=bf16 scaling=alpha activation=gelu_erf gate=stacked out=fp32",
        "matmul m=7 n=70 k=33 batch=5 dtype=bf16 bias=column residual=add",
        "matmul m=65 n=9 k=33 batch=3 lda=40 ldb=27 ldd=11 dtype=fp16 b_layout=kn",
        "matmul m=65 n=9 k=33 batch=2 lda=34 ldb=40 ldd=64 dtype=bf16 gate=stacked",
        "matmul m=65 n=129 k=33 dtype=fp16 split=qkv",
        "matmul m=7 n=127 k=33 n_kv=13 dtype=bf16 scaling=alpha bias=column split=qkv out=fp32",
        "matmul m=7 n=127 k=3 dtype=fp32 tf32=allow",
        "matmul m=65 n=129 k=257 dtype=fp32 tf32=allow scaling=alpha bias=column residual=add",
        "matmul m=7 n=70 k=33 dtype=fp32 tf32=allow activation=silu gate=stacked"}},
      {"rmsnorm",
       [](In in, Sizes d, Of p) { return rmsnorm_in_double(in, d, dtype_of(p)); },
       {"rmsnorm rows=1 columns=1 dtype=fp32", "rmsnorm rows=7 columns=1000 dtype=bf16",
        "rmsnorm rows=3 columns=127 dtype=fp16 weight=none",
        "rmsnorm rows=5 columns=5001 dtype=fp32",
        "rmsnorm rows=7 columns=77 dtype=bf16 residual=add",
        "rmsnorm rows=3 columns=1000 dtype=fp16 residual=add"}},
      {"layernorm",
       [](In in, Sizes d, Of p) { return layernorm_in_double(in, d, dtype_of(p)); },
       {"layernorm rows=1 columns=2 dtype=fp32", "layernorm rows=7 columns=1000 dtype=bf16",
        "layernorm rows=3 columns=127 dtype=fp16 weight=none bias=none",
        "layernorm rows=5 columns=5001 dtype=fp32 bias=none",
        "layernorm rows=7 columns=777 dtype=bf16 residual=add"}},
      {"reduce",
       [](In in, Sizes d, Of p) {
         return reduce_in_double(in, d, flag(p, "kind"), flag(p, "over") == "tensor");
       },
       {"reduce rows=1 columns=1 dtype=fp32", "reduce rows=7 columns=1000 dtype=bf16",
        "reduce rows=300 columns=127 dtype=fp16 kind=max",
        "reduce rows=5 columns=5001 dtype=fp32 kind=mean",
        "reduce rows=5 columns=501 dtype=bf16 kind=sum_squares out=fp32",
        "reduce rows=50 columns=501 dtype=bf16 over=tensor",
        "reduce rows=50 columns=501 dtype=fp32 kind=mean over=tensor"}},
      {"softmax",
       [](In in, Sizes d, Of p) { return softmax_in_double(in, d, flag(p, "mask") == "causal"); },
       {"softmax rows=1 columns=1 dtype=fp32", "softmax rows=7 columns=1000 dtype=bf16",
        "softmax rows=300 columns=127 dtype=fp16 mask=causal",
        "softmax rows=5 columns=5001 dtype=fp32 mask=additive"}},
      {"gated_activation",
       gated_activation_in_double,
       {"gated_activation rows=1 columns=1 dtype=fp32",
        "gated_activation rows=7 columns=127 dtype=bf16 layout=packed activation=gelu_tanh",
        "gated_activation rows=7 columns=100 dtype=fp16 activation=gelu_erf",
        "gated_activation rows=7 columns=100 dtype=fp32 activation=relu out=fp8_e4m3"}},
      {"bias_activation",
       bias_activation_in_double,
       {"bias_activation rows=1 columns=1 dtype=fp32",
        "bias_activation rows=7 columns=127 dtype=bf16 residual=add",
        "bias_activation rows=7 columns=100 dtype=bf16 activation=none",
        "bias_activation rows=7 columns=100 dtype=fp16 activation=gelu_erf",
        "bias_activation rows=7 columns=100 dtype=fp32 activation=silu",
        "bias_activation rows=7 columns=100 dtype=bf16 activation=relu residual=add",
        "bias_activation rows=7 columns=100 dtype=fp32 activation=relu_squared"}},
      {"rope",
       rope_in_double,
       {"rope tokens=1 heads=1 kv_heads=1 head_dim=2 dtype=fp32",
        "rope tokens=7 heads=5 kv_heads=2 head_dim=20 dtype=bf16",
        "rope tokens=7 heads=5 kv_heads=2 head_dim=20 dtype=fp16 pairs=neighbours append=cache"}},
      // Every query sees a key.
      {"attention",
       attention_in_double,
       {"attention batch=1 heads=1 q_len=1 kv_len=1 head_dim=8 dtype=bf16 lse=natural",
        "attention batch=2 heads=6 kv_heads=2 q_len=9 kv_len=70 head_dim=72 head_dim_v=88 "
        "dtype=fp16 mask=causal lse=base2",
        "attention batch=2 heads=2 q_len=40 kv_len=100 head_dim=136 head_dim_v=320 ldk=288 "
        "ldv=656 dtype=bf16 mask=window window=35 sink=head lse=natural",
        "attention batch=2 heads=4 q_len=3 kv_len=65 head_dim=64 dtype=bf16 layout=bhsd "
        "softcap=tanh bias=alibi lse=natural",
        "attention batch=3 heads=4 kv_heads=2 q_len=5 kv_len=90 q_total=9 kv_total=160 head_dim=40 "
        "dtype=fp16 lengths=ragged sink=head",
        "attention batch=3 heads=4 kv_heads=2 q_len=5 kv_len=90 kv_total=200 page=7 head_dim=64 "
        "dtype=bf16 kv=fp8_e4m3 descale=tensor lengths=kv cache=paged layout=bhsd lse=natural",
        "attention batch=2 heads=4 kv_heads=2 q_len=20 kv_len=50 head_dim=144 head_dim_v=64 "
        "dtype=fp8_e4m3 out=bf16 descale=head mask=causal lse=natural"}},
      {"attention_merge",
       attention_merge_in_double,
       {"attention_merge parts=1 batch=1 heads=1 q_len=1 head_dim_v=8 dtype=fp32 lse=natural",
        "attention_merge parts=5 batch=2 heads=3 q_len=7 head_dim_v=72 dtype=bf16 layout=bhsd",
        "attention_merge parts=2 batch=3 heads=2 q_len=5 head_dim_v=64 ldp=136 dtype=fp16 "
        "lse_parts=base2 lse=natural",
        "attention_merge parts=3 batch=1 heads=4 q_len=9 head_dim_v=16 dtype=fp32 lse=base2"}},
      {"kv_append",
       kv_append_in_double,
       {"kv_append batch=1 kv_heads=1 q_len=1 kv_len=1 head_dim=8 dtype=bf16",
        "kv_append batch=2 kv_heads=2 heads=4 q_len=9 kv_len=5 head_dim=16 dtype=fp16 rope=qk",
        "kv_append batch=3 kv_heads=2 q_len=4 kv_len=50 kv_total=90 head_dim=24 head_dim_v=16 "
        "ldk=56 ldv_cache=40 dtype=bf16 lengths=kv layout=bhsd rope=k pairs=neighbours",
        "kv_append batch=3 kv_heads=2 q_len=9 kv_len=50 q_total=15 kv_total=90 head_dim=16 "
        "dtype=bf16 lengths=ragged",
        "kv_append batch=3 kv_heads=2 heads=6 q_len=9 kv_len=50 q_total=15 kv_total=90 page=7 "
        "head_dim=16 dtype=bf16 kv=fp8_e4m3 lengths=ragged cache=paged rope=qk",
        "kv_append batch=2 kv_heads=2 heads=4 q_len=9 kv_len=5 head_dim=16 dtype=fp16 rope=qk "
        "norm=rms",
        "kv_append batch=3 kv_heads=2 q_len=4 kv_len=50 kv_total=90 head_dim=24 head_dim_v=16 "
        "ldk=56 dtype=bf16 kv=fp8_e4m3 lengths=kv layout=bhsd rope=k pairs=neighbours norm=rms"}},
      {"attention_schedule",
       attention_schedule_in_double,
       {"attention_schedule batch=1 slots=1 kv_len=1",
        "attention_schedule batch=1 slots=40 kv_len=5000",
        "attention_schedule batch=9 slots=1 q_len=3 kv_len=700 kv_total=3000",
        "attention_schedule batch=300 slots=17 kv_len=9000 kv_total=90000 mask=window window=300",
        "attention_schedule batch=5 slots=132 q_len=9 kv_len=40000 q_total=12 kv_total=50000 "
        "lengths=ragged mask=causal",
        "attention_schedule batch=77 slots=33 q_len=1 kv_len=4000 q_total=40 kv_total=30000 "
        "lengths=ragged cache=paged"}},
      {"argmax",
       argmax_in_double,
       {"argmax rows=1 columns=1 dtype=fp32", "argmax rows=1 columns=151936 dtype=bf16",
        "argmax rows=300 columns=77 dtype=fp16"}},
      {"embedding",
       embedding_in_double,
       {"embedding tokens=1 hidden=1 vocabulary=1 dtype=fp32",
        "embedding tokens=300 hidden=40 vocabulary=77 dtype=bf16 lengths=advance",
        "embedding tokens=7 hidden=333 vocabulary=1000 dtype=fp16"}},
      {"elementwise",
       elementwise_in_double,
       {"elementwise n=1001 dtype=fp32 formula=a*x+y",
        "elementwise n=1001 dtype=bf16 y_dtype=fp32 formula=silu(x)*y",
        "elementwise n=1001 dtype=fp16 formula=max(x,y)/(1+exp(-z))"}},
      {"vector_add",
       [](In in, Sizes d, Of) { return vector_add_in_double(in, d); },
       {"vector_add n=1 dtype=bf16", "vector_add n=12345 dtype=fp16",
        "vector_add n=1001 dtype=fp32"}}};
}

class ReferenceGpuTest : public GpuWorld {
 protected:
  void check(const Case& item, std::string_view text);
};

void ReferenceGpuTest::check(const Case& item, std::string_view text) {
  SCOPED_TRACE(text);
  const BoundProblem problem = bound(text);
  auto drawer = InputDrawer::make(*device_, *pool_, problem, *catalog_);
  ASSERT_TRUE(drawer) << drawer.error().message;
  auto sets =
      BufferSets::make(*device_, *ops_, problem.shapes(), L2State::warm, 5, {.drawer = *drawer});
  ASSERT_TRUE(sets) << sets.error().message;
  const std::vector<TensorShape>& shapes = sets.value().shapes();
  Arrays inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].role == TensorRole::out) continue;
    const auto raw = download<char>(sets.value().address(0, i), shapes[i].bytes());
    for (std::int64_t e = 0; e < shapes[i].elements(); ++e) {
      const std::int64_t place = shapes[i].layout().place(e);
      inputs[shapes[i].name].push_back(load_element(raw.data(), shapes[i].dtype, place));
    }
  }
  Dims dims;
  for (const Dim& dim : problem.operation().dims) {
    dims[dim.name] = static_cast<std::size_t>(problem.size(dim));
  }
  const Outputs expected = item.compute(inputs, dims, problem.problem());

  const ExecutionPlan plan = make_reference_plan(problem, device_->profile()).value();
  const CompileResult compiled =
      pool_->submit(render_reference(problem, *catalog_, device_->profile().sm_arch)).get();
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto program = device_->load(compiled.value()->bits, plan);
  ASSERT_TRUE(program) << program.error().message;
  LaunchArguments arguments;
  arguments.tensors = sets.value().addresses(0, plan.tensors);
  arguments.references.resize(plan.tensors.size());
  arguments.magnitudes.resize(plan.tensors.size());
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].role == TensorRole::in) continue;
    for (auto* place : {&arguments.references, &arguments.magnitudes}) {
      auto buffer = device_->allocate(plan.tensors[i].elements() * 8);
      ASSERT_TRUE(buffer) << buffer.error().message;
      (*place)[i] = buffer.value()->address();
      buffers.push_back(std::move(buffer).value());
    }
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.checked_value);
  const auto ran = device_->run(*program.value(), arguments);
  ASSERT_TRUE(ran) << ran.error().message;
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
      // fp32 accumulation, each element a share of its magnitude.
      ASSERT_NEAR(static_cast<double>(got[e]), output.value[e], 4e-6 * output.magnitude[e] + 1e-30)
          << e;
      ASSERT_NEAR(static_cast<double>(terms[e]), output.magnitude[e],
                  1e-4 * output.magnitude[e] + 1e-30)
          << e;
    }
  }
  EXPECT_EQ(compared, expected.size());
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
