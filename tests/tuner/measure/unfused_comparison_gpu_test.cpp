#include <algorithm>
#include <optional>

#include "compile/render.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/measure/unfused_comparison.h"

namespace kernwright {
namespace {

class UnfusedComparisonGpuTest : public GpuWorld {
 protected:
  /// Returns a candidate of the first template that takes the problem: its default if that is
  /// valid, else its first candidate.
  std::optional<ProvenKernel> some_kernel(const BoundProblem& problem) {
    const auto list = enumerate_candidates(*catalog_, problem, device_->profile());
    if (!list || list.value().candidates.empty()) {
      ADD_FAILURE() << "no candidate for " << problem.text();
      return std::nullopt;
    }
    const std::vector<Candidate>& all = list.value().candidates;
    const auto chosen = std::find_if(all.begin(), all.end(), [&](const Candidate& candidate) {
      return candidate.kernel_template == all.front().kernel_template &&
             candidate.configuration == candidate.kernel_template->default_configuration;
    });
    const Candidate& candidate = chosen == all.end() ? all.front() : *chosen;
    const CompileResult compiled =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    if (!compiled) {
      ADD_FAILURE() << compiled.error().message;
      return std::nullopt;
    }
    return ProvenKernel{candidate, *compiled};
  }

  void compare(const std::string& text) {
    SCOPED_TRACE(text);
    const BoundProblem problem = bound(text);
    UnfusedMatch match;
    match.form = must(unfused_form(*catalog_, problem));
    match.fused = must(some_kernel(problem));
    for (const UnfusedKernel& kernel : match.form.kernels) {
      auto step = must(some_kernel(kernel.problem));
      match.kernels.push_back(std::move(step));
    }
    const auto compared =
        must(compare_unfused(*device_, *ops_, *catalog_, *pool_, match, L2State::cold, 5));
    EXPECT_GT(compared.fused.times.median_us(), 0);
    EXPECT_GT(compared.unfused.times.median_us(), 0);
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
        "dtype=fp16 residual=scaled b_layout=kn out=fp32",
        "dtype=bf16 activation=silu gate=stacked", "dtype=fp16 activation=gelu_tanh gate=stacked",
        "dtype=fp32 tf32=allow bias=column activation=gelu_tanh residual=add"}) {
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
