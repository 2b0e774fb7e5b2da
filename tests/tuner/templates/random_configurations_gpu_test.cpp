// Random configurations of every template at problems of awkward sizes, each template for itself:
// there are up to 1,400 of one.

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "tests/model/template_names.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

const std::map<std::string, std::vector<std::string>>& problems_of_operations() {
  static const std::map<std::string, std::vector<std::string>> problems = {
      {"argmax",
       {"argmax rows=1 columns=128256 dtype=fp16", "argmax rows=16 columns=50257 dtype=bf16",
        "argmax rows=301 columns=4104 dtype=fp32"}},
      {"attention",
       {"attention batch=2 heads=3 q_len=130 kv_len=300 head_dim=64 dtype=bf16 lse=base2",
        "attention batch=3 heads=6 kv_heads=2 q_len=1 kv_len=999 head_dim=64 dtype=bf16 sink=head",
        "attention batch=2 heads=2 q_len=9 kv_len=99 kv_total=150 head_dim=8 dtype=fp16 lengths=kv",
        std::string("attention batch=3 heads=4 kv_heads=2 q_len=100 kv_len=200 q_total=150 ") +
            "kv_total=350 head_dim=64 dtype=fp16 lengths=ragged mask=causal",
        std::string("attention batch=3 heads=6 kv_heads=2 q_len=4 kv_len=300 kv_total=700 ") +
            "page=16 head_dim=64 dtype=bf16 lengths=kv cache=paged mask=causal",
        std::string("attention batch=3 heads=6 kv_heads=2 q_len=2 kv_len=999 head_dim=128 ") +
            "dtype=bf16 kv=fp8_e4m3 mask=causal descale=head lse=natural",
        std::string("attention batch=2 heads=3 q_len=70 kv_len=150 head_dim=80 head_dim_v=48 ") +
            "dtype=fp8_e4m3 out=fp16 descale=tensor"}},
      {"attention_merge",
       {"attention_merge parts=2 batch=2 heads=3 q_len=77 head_dim_v=128 dtype=bf16 lse=natural",
        std::string("attention_merge parts=33 batch=3 heads=5 q_len=9 head_dim_v=72 ldp=360 ") +
            "ldo=368 dtype=fp16 out=fp32 lse_parts=base2 lse=natural",
        std::string("attention_merge parts=17 batch=2 heads=3 q_len=50 head_dim_v=64 ") +
            "dtype=fp32 out=bf16 layout=bhsd lse=base2"}},
      {"bias_activation",
       {"bias_activation rows=1003 columns=1000 dtype=bf16",
        "bias_activation rows=301 columns=4104 dtype=fp32 residual=add",
        "bias_activation rows=5003 columns=72 dtype=fp16 activation=gelu_erf"}},
      {"elementwise",
       {"elementwise n=1000001 dtype=bf16 formula=a*x+y",
        "elementwise n=300000 dtype=fp32 out=bf16 formula=x*y+z*w"}},
      {"embedding",
       {"embedding tokens=301 hidden=4096 vocabulary=5000 dtype=bf16 lengths=advance",
        "embedding tokens=33 hidden=1001 vocabulary=700 dtype=fp16",
        "embedding tokens=7 hidden=1030 vocabulary=99 dtype=fp32 lengths=advance"}},
      {"gated_activation",
       {"gated_activation rows=1003 columns=1000 dtype=bf16",
        "gated_activation rows=301 columns=4104 dtype=fp32 layout=packed",
        "gated_activation rows=5003 columns=72 dtype=fp16 out=fp8_e4m3"}},
      {"attention_schedule",
       {"attention_schedule batch=2000 slots=264 kv_len=9000 kv_total=900000 mask=window "
        "window=1000",
        "attention_schedule batch=700 slots=132 q_len=9 kv_len=40000 q_total=1200 kv_total=500000 "
        "lengths=ragged"}},
      {"kv_append",
       {"kv_append batch=3 kv_heads=8 q_len=37 kv_len=100 kv_total=200 head_dim=72 dtype=bf16 "
        "lengths=kv rope=k pairs=neighbours",
        "kv_append batch=5 kv_heads=2 heads=8 q_len=40 kv_len=90 head_dim=64 head_dim_v=128 "
        "q_total=101 kv_total=260 dtype=fp16 lengths=ragged rope=qk",
        "kv_append batch=4 kv_heads=8 q_len=30 kv_len=100 head_dim=80 q_total=70 kv_total=250 "
        "page=24 dtype=bf16 kv=fp8_e4m3 layout=bhsd lengths=ragged cache=paged",
        "kv_append batch=9 kv_heads=8 heads=16 q_len=1 kv_len=700 kv_total=3000 head_dim=128 "
        "dtype=bf16 lengths=kv cache=paged rope=qk norm=rms",
        "kv_append batch=3 kv_heads=3 heads=6 q_len=37 kv_len=100 head_dim=72 head_dim_v=40 "
        "dtype=fp16 rope=qk pairs=neighbours norm=rms"}},
      {"matmul",
       {"matmul m=515 n=776 k=1096 dtype=bf16",
        "matmul m=200 n=333 k=517 dtype=fp16",
        "matmul m=13 n=777 k=1096 dtype=bf16",
        "matmul m=49 n=333 k=1096 dtype=fp16",
        "matmul m=777 n=13 k=1093 dtype=bf16",
        "matmul m=250 n=1000 k=4096 dtype=fp16",
        "matmul m=1501 n=1603 k=515 dtype=bf16",
        "matmul m=130 n=120 k=16386 dtype=bf16",
        "matmul m=9 n=1001 k=1033 dtype=fp16",
        "matmul m=2515 n=1608 k=136 dtype=bf16 bias=column activation=gelu_tanh residual=add",
        "matmul m=49 n=333 k=1096 dtype=fp16 bias=column activation=silu residual=add",
        "matmul m=13 n=776 k=520 dtype=bf16 bias=column activation=gelu_erf residual=add",
        "matmul m=515 n=776 k=1104 dtype=fp8_e4m3 out=bf16 scaling=alpha",
        "matmul m=1501 n=1608 k=1040 dtype=fp8_e4m3 out=fp16",
        "matmul m=1501 n=1608 k=1040 dtype=fp8_e4m3 out=bf16 accumulate=fast",
        "matmul m=1500 n=1603 k=2061 dtype=fp8_e4m3 out=bf16",
        "matmul m=130 n=264 k=16384 dtype=fp8_e4m3 out=bf16",
        "matmul m=13 n=777 k=4112 dtype=fp8_e4m3 out=bf16",
        "matmul m=777 n=49 k=2061 dtype=fp8_e4m3 out=fp32 accumulate=fast",
        "matmul m=515 n=776 k=144 dtype=fp8_e4m3 out=bf16 bias=column activation=silu",
        "matmul m=515 n=776 k=1100 dtype=fp32 tf32=allow",
        "matmul m=1501 n=3084 k=516 dtype=fp32 tf32=allow",
        "matmul m=1501 n=1603 k=515 dtype=fp32 tf32=allow",
        "matmul m=1501 n=1608 k=516 dtype=fp32 tf32=allow out=bf16",
        "matmul m=13 n=777 k=4100 dtype=fp32 tf32=allow",
        "matmul m=777 n=49 k=2061 dtype=fp32 tf32=allow",
        "matmul m=515 n=776 k=72 dtype=fp32 tf32=allow bias=column activation=silu residual=add",
        "matmul m=1501 n=804 k=516 dtype=fp32 tf32=allow activation=silu gate=stacked",
        "matmul m=1501 n=1608 k=520 dtype=bf16 out=fp32",
        "matmul m=1501 n=1608 k=520 dtype=fp16 b_layout=kn",
        "matmul m=1501 n=1608 k=517 dtype=bf16 b_layout=kn",
        "matmul m=49 n=1000 k=1096 dtype=bf16 b_layout=kn",
        "matmul m=200 n=776 k=1033 dtype=fp16 b_layout=kn bias=column",
        "matmul m=515 n=777 k=1093 dtype=fp16 b_layout=kn",
        "matmul m=515 n=776 k=1096 dtype=bf16 b_layout=kn out=fp32",
        "matmul m=2515 n=808 k=136 dtype=bf16 activation=silu gate=stacked",
        "matmul m=1501 n=803 k=515 dtype=fp16 activation=gelu_tanh gate=stacked scaling=alpha",
        "matmul m=49 n=333 k=1096 dtype=bf16 activation=gelu_erf gate=stacked",
        "matmul m=100 n=1000 k=2056 dtype=fp16 activation=silu gate=stacked",
        "matmul m=13 n=777 k=1033 dtype=bf16 activation=silu gate=stacked",
        "matmul m=515 n=777 k=1093 dtype=fp16 activation=silu gate=stacked b_layout=kn"}},
      {"rmsnorm",
       {"rmsnorm rows=301 columns=4104 dtype=bf16", "rmsnorm rows=77 columns=771 dtype=fp32",
        "rmsnorm rows=3001 columns=1024 dtype=fp16 residual=add",
        "rmsnorm rows=9 columns=16384 dtype=bf16"}},
      {"layernorm",
       {"layernorm rows=301 columns=4104 dtype=bf16 residual=add",
        "layernorm rows=3001 columns=1024 dtype=fp16", "layernorm rows=77 columns=771 dtype=fp32"}},
      {"reduce",
       {"reduce rows=301 columns=4104 dtype=bf16",
        "reduce rows=3001 columns=1024 dtype=fp16 out=fp32",
        "reduce rows=77 columns=771 dtype=fp32 kind=max",
        "reduce rows=2001 columns=1001 dtype=bf16 out=fp32 over=tensor"}},
      {"softmax",
       {"softmax rows=301 columns=4104 dtype=bf16", "softmax rows=3001 columns=1024 dtype=fp16",
        "softmax rows=1777 columns=771 dtype=fp32 mask=causal"}},
      {"rope",
       {"rope tokens=301 heads=7 kv_heads=3 head_dim=128 dtype=bf16 append=cache",
        "rope tokens=1001 heads=32 kv_heads=8 head_dim=80 dtype=fp16 pairs=neighbours",
        "rope tokens=77 heads=5 kv_heads=1 head_dim=6 dtype=fp32"}},
      {"vector_add", {"vector_add n=1000001 dtype=bf16", "vector_add n=300000 dtype=fp32"}}};
  return problems;
}

class RandomConfigurationsGpuTest : public TemplateChecks,
                                    public ::testing::WithParamInterface<std::string> {};

TEST_P(RandomConfigurationsGpuTest, ThirtyAreRightAtEveryProblem) {
  const KernelTemplate& kernel_template = **catalog_->kernel_template(GetParam());
  bool covered = false;
  std::uint64_t seed = 100;
  for (const std::string& text : problems_of_operations().at(kernel_template.operation)) {
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    const auto chosen = some(list, kernel_template.name, 30);
    covered = covered || !chosen.empty();
    check(problem, list, chosen, seed++);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(covered, kernel_template.runs_on(device_->profile().sm_arch));
}

INSTANTIATE_TEST_SUITE_P(Embedded, RandomConfigurationsGpuTest,
                         ::testing::ValuesIn(template_names()), template_test_name);

}  // namespace
}  // namespace kernwright
