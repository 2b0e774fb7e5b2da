#include <optional>

#include "compile/render.h"
#include "support/text.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/unfused_comparison.h"

namespace kernwright {
namespace {

class UnfusedComparisonGpuTest : public GpuWorld {
 protected:
  /// The default of the first template that takes the problem.
  std::optional<ProvenKernel> default_kernel(const Operation& op, const Problem& problem) {
    for (const KernelTemplate* made : catalog_->templates_of(op.name)) {
      if (!applies(*made, op, problem, device_->profile())) continue;
      auto candidate =
          make_candidate(*made, op, problem, made->default_configuration, device_->profile());
      if (!candidate) continue;
      const CompileResult compiled =
          pool_->submit(render(*candidate, *catalog_, device_->profile().sm_arch)).get();
      EXPECT_TRUE(compiled) << compiled.error().message;
      if (compiled) return ProvenKernel{*std::move(candidate), *compiled};
    }
    ADD_FAILURE() << "no template for " << problem.text();
    return std::nullopt;
  }

  void compare(const std::string& text) {
    SCOPED_TRACE(text);
    const Problem problem = normalized(text);
    const Operation& op = operation(problem.operation());
    UnfusedMatch match;
    auto form = unfused_form(*catalog_, op, problem);
    ASSERT_TRUE(form) << form.error().message;
    match.form = *std::move(form);
    auto fused = default_kernel(op, problem);
    ASSERT_TRUE(fused);
    match.fused = *std::move(fused);
    for (const UnfusedKernel& kernel : match.form.kernels) {
      auto step = default_kernel(*kernel.operation, kernel.problem);
      ASSERT_TRUE(step);
      match.kernels.push_back(*std::move(step));
    }
    const auto compared =
        compare_unfused(*device_, *ops_, *catalog_, *pool_, match, L2State::cold, 5);
    ASSERT_TRUE(compared) << compared.error().message;
    EXPECT_GT(compared->fused.times.median_us(), 0);
    EXPECT_GT(compared->unfused.times.median_us(), 0);
  }
};

TEST_F(UnfusedComparisonGpuTest, EveryFormGivesTheResultOfItsFusedKernel) {
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* flags : {"rmsnorm residual=add",
                              "rmsnorm residual=add weight=none out=fp32",
                              "rmsnorm residual=add out=fp8_e4m3",
                              "rmsnorm out=fp8_e4m3",
                              "rmsnorm residual=add out=int8",
                              "layernorm residual=add",
                              "layernorm residual=add weight=none bias=none",
                              "gated_activation",
                              "gated_activation activation=gelu_tanh out=fp32",
                              "gated_activation activation=gelu_erf out=fp8_e4m3",
                              "gated_activation activation=relu",
                              "bias_activation",
                              "bias_activation activation=gelu_erf residual=add",
                              "bias_activation activation=silu out=fp32",
                              "bias_activation activation=relu residual=add",
                              "bias_activation activation=relu_squared",
                              "bias_activation activation=none residual=add",
                              "bias_activation activation=relu_squared residual=add",
                              "softmax",
                              "softmax mask=additive"}) {
      compare(concat(flags, " rows=301 columns=1000 dtype=", dtype));
    }
    compare(concat("rope tokens=301 heads=7 kv_heads=3 head_dim=128 append=cache dtype=", dtype));
  }
}

TEST_F(UnfusedComparisonGpuTest, EveryEpilogueIsThatOfSeparateKernels) {
  for (const char* flags :
       {"dtype=bf16 bias=column", "dtype=fp16 bias=column activation=gelu_tanh residual=add",
        "dtype=bf16 bias=column activation=silu residual=scaled scaling=alpha",
        "dtype=bf16 activation=gelu_erf", "dtype=fp16 activation=silu residual=add",
        "dtype=bf16 activation=gelu_tanh residual=scaled", "dtype=bf16 residual=add",
        "dtype=fp16 residual=scaled b_layout=kn out=fp32"}) {
    for (const char* shape : {"m=333 n=776 k=1096", "m=16 n=1024 k=512"}) {
      compare(concat("matmul ", flags, " ", shape));
    }
  }
  if (device_->profile().sm_arch < 89) GTEST_SKIP() << "no products of fp8";
  for (const char* flags :
       {"activation=silu", "out=bf16 bias=column activation=gelu_tanh scaling=alpha",
        "out=fp16 activation=gelu_erf residual=add accumulate=fast"}) {
    compare(concat("matmul m=333 n=784 k=1104 dtype=fp8_e4m3 ", flags));
  }
}

}  // namespace
}  // namespace kernwright
