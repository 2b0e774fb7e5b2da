#include <algorithm>
#include <gtest/gtest.h>

#include "compile/render.h"
#include "support/files.h"
#include "support/random.h"
#include "support/text.h"
#include "tests/temp_dir.h"
#include "tests/tuner/templates/template_checks.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {
namespace {

class TemplatesGpuTest : public TemplateChecks {};

TEST_F(TemplatesGpuTest, RmsnormDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int rows : {1, 7, 1000}) {
      for (const int columns : {1, 7, 127, 1000, 4100, 30001}) {
        for (const char* weight : {"scale", "none"}) {
          problems.push_back(concat("rmsnorm rows=", rows, " columns=", columns, " dtype=", dtype,
                                    " weight=", weight));
        }
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, RowDefaultsAreRightWithEveryFlag) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* size : {"rows=1 columns=1", "rows=7 columns=127", "rows=1000 columns=40",
                             "rows=300 columns=4100", "rows=3 columns=30001"}) {
      for (const char* operation :
           {"rmsnorm", "layernorm", "softmax", "rmsnorm residual=add", "rmsnorm out=fp8_e4m3",
            "rmsnorm out=int8", "layernorm residual=add", "layernorm weight=none",
            "layernorm bias=none", "softmax mask=causal", "softmax mask=additive",
            "reduce out=fp32", "reduce kind=max", "reduce kind=mean out=fp32",
            "reduce kind=sum_squares out=fp32", "reduce over=tensor out=fp32",
            "reduce over=tensor kind=max", "reduce over=tensor kind=mean out=fp32"}) {
        problems.push_back(concat(operation, " ", size, " dtype=", dtype));
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, RowsOfAnyWidthHaveARightCandidate) {
  std::vector<std::string> problems;
  for (const char* operation :
       {"rmsnorm residual=add", "layernorm residual=add", "softmax", "softmax mask=additive"}) {
    for (const char* columns : {"65536", "131071", "262143", "262144", "400003"}) {
      problems.push_back(concat(operation, " rows=3 columns=", columns, " dtype=bf16"));
      problems.push_back(concat(operation, " rows=3 columns=", columns, " dtype=fp32"));
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, VectorAddDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int n : {1, 7, 127, 1000, 65537, 1000003}) {
      problems.push_back(concat("vector_add n=", n, " dtype=", dtype));
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, PointwiseDefaultsAreRightWithEveryFlag) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* shape : {"rows=1 columns=1", "rows=1001 columns=3", "rows=77 columns=1001",
                              "rows=301 columns=4104", "rows=3 columns=131074"}) {
      for (const char* flags :
           {"gated_activation", "gated_activation activation=gelu_tanh",
            "gated_activation activation=gelu_erf out=fp32",
            "gated_activation activation=relu layout=packed",
            "gated_activation layout=packed out=fp8_e4m3", "bias_activation",
            "bias_activation activation=none residual=add", "bias_activation activation=gelu_erf",
            "bias_activation activation=silu residual=add",
            "bias_activation activation=relu out=fp32",
            "bias_activation activation=relu_squared out=bf16"}) {
        problems.push_back(concat(flags, " ", shape, " dtype=", dtype));
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, RopeDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* shape :
         {"tokens=1 heads=1 kv_heads=1 head_dim=2", "tokens=1001 heads=3 kv_heads=1 head_dim=6",
          "tokens=77 heads=5 kv_heads=5 head_dim=20", "tokens=301 heads=32 kv_heads=8 head_dim=128",
          "tokens=7 heads=64 kv_heads=1 head_dim=576"}) {
      for (const char* flags : {"rope", "rope pairs=neighbours", "rope append=cache",
                                "rope append=cache pairs=neighbours"}) {
        problems.push_back(concat(flags, " ", shape, " dtype=", dtype));
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, MergeDefaultsAreRightWithEveryFlag) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32", "fp32 out=bf16"}) {
    for (const char* shape : {"parts=1 batch=1 heads=1 q_len=1 head_dim_v=8",
                              "parts=2 batch=2 heads=3 q_len=77 head_dim_v=128",
                              "parts=9 batch=1 heads=5 q_len=33 head_dim_v=72"}) {
      for (const char* layout : {"bshd", "bhsd"}) {
        for (const char* bases : {"lse_parts=natural", "lse_parts=base2 lse=natural",
                                  "lse_parts=natural lse=base2", "lse_parts=base2 lse=base2"}) {
          problems.push_back(
              concat("attention_merge ", shape, " dtype=", dtype, " layout=", layout, " ", bases));
        }
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, AppendDefaultsAreRightWithEveryFlag) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "bf16 kv=fp8_e4m3"}) {
    for (const char* lengths :
         {"lengths=full", "lengths=kv kv_total=250", "lengths=ragged q_total=60 kv_total=250"}) {
      for (const char* cache : {"", " cache=paged page=24", " layout=bhsd",
                                " layout=bhsd cache=paged page=16 pages=50"}) {
        for (const char* rope :
             {"", " rope=k", " rope=qk heads=6", " rope=qk heads=6 pairs=neighbours",
              " rope=k norm=rms", " rope=qk heads=6 norm=rms"}) {
          problems.push_back(concat("kv_append batch=3 kv_heads=3 q_len=37 kv_len=130 head_dim=72 ",
                                    "head_dim_v=128 dtype=", dtype, " ", lengths, cache, rope));
        }
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, GroupedMatmulDefaultsAreRightWithEveryFlag) {
  std::vector<std::string> problems;
  for (const char* sizes : {"groups=1 rows=1 k=16", "groups=5 rows=700 k=336",
                            "groups=40 rows=97 k=208", "groups=256 rows=1000 k=144"}) {
    for (const char* layout : {"", " layout=masked"}) {
      const auto add = [&](const char* rest) {
        problems.push_back(concat("grouped_matmul ", sizes, layout, rest));
      };
      for (const char* dtype : {" dtype=bf16", " dtype=fp16", " dtype=fp8_e4m3 out=bf16"}) {
        add(concat(" n=264", dtype).c_str());
        add(concat(" n=200 activation=gelu_tanh", dtype).c_str());
        add(concat(" n=256 activation=silu gate=stacked", dtype).c_str());
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, ArgmaxDefaultsAreRight) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int rows : {1, 7, 16, 1000}) {
      for (const int columns : {1, 2, 7, 127, 1000, 50257, 128256}) {
        problems.push_back(concat("argmax rows=", rows, " columns=", columns, " dtype=", dtype));
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, EmbeddingDefaultsAreRight) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const char* sizes :
         {"tokens=1 hidden=1 vocabulary=1", "tokens=1 hidden=4096 vocabulary=3000",
          "tokens=16 hidden=1024 vocabulary=151936", "tokens=2000 hidden=77 vocabulary=300"}) {
      for (const char* lengths : {"", " lengths=advance"}) {
        problems.push_back(concat("embedding ", sizes, " dtype=", dtype, lengths));
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, AttentionScheduleDefaultsAreRight) {
  std::vector<std::string> problems;
  for (const char* sizes : {"batch=1 slots=1", "batch=1 slots=132", "batch=33 slots=7",
                            "batch=129 slots=40", "batch=1000 slots=333"}) {
    for (const char* lengths :
         {"kv_len=1", "kv_len=5000 q_len=3", "kv_len=700 q_len=9 lengths=ragged mask=causal",
          "kv_len=700 q_len=9 lengths=ragged cache=paged mask=window window=130"}) {
      problems.push_back(concat("attention_schedule ", sizes, " ", lengths));
    }
  }
  problems.push_back("attention_schedule batch=64 slots=33 kv_len=16384 kv_total=100000");
  problems.push_back(
      "attention_schedule batch=64 slots=33 q_len=50 q_total=90 kv_len=999 kv_total=9000 "
      "lengths=ragged");
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, ElementwiseDefaultsAreRightWithEveryFunction) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int n : {1, 7, 1000, 65537, 1000003}) {
      for (const char* formula :
           {"a*x+y", "x*y+z*w", "x/(1+abs(y))", "exp(x)-b", "log(1+x*x)", "sqrt(x*x+y*y)",
            "tanh(x)*y", "sigmoid(x)*max(y,z)", "silu(x)*min(y,0.5)", "gelu_erf(x)+gelu_tanh(y)",
            "relu(-x)/3", "b"}) {
        problems.push_back(concat("elementwise n=", n, " dtype=", dtype, " formula=", formula));
      }
    }
  }
  for (const char* mixed :
       {"dtype=bf16 y_dtype=fp32 formula=x*y", "dtype=fp32 out=fp8_e4m3 formula=x",
        "dtype=bf16 out=fp32 formula=x*a", "dtype=fp16 z_dtype=bf16 formula=x-z"}) {
    problems.push_back(concat("elementwise n=100003 ", mixed));
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, PointwiseDefaultsAreRightAtRandomShapes) {
  const std::vector<std::string> flags = {"gated_activation dtype=bf16",
                                          "gated_activation dtype=fp16 layout=packed",
                                          "gated_activation dtype=fp32",
                                          "gated_activation dtype=bf16 out=fp8_e4m3",
                                          "bias_activation dtype=bf16",
                                          "bias_activation dtype=fp16 activation=gelu_erf",
                                          "bias_activation dtype=fp32 residual=add"};
  std::vector<std::string> problems;
  for (std::uint64_t i = 0; i < 60; ++i) {
    // Columns over 18 powers of 2, and at most 2^21 elements.
    const std::uint64_t columns = 1 + hash_at(5, 2 * i) % (std::uint64_t{2} << (i % 18));
    const std::uint64_t rows =
        1 + hash_at(5, 2 * i + 1) % std::max<std::uint64_t>((1 << 21) / columns, 1);
    problems.push_back(concat(flags[i % flags.size()], " rows=", rows, " columns=", columns));
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, DefaultsAndRandomConfigurationsTouchNoUnmappedPage) {
  for (const char* text :
       {"bias_activation rows=301 columns=1000 dtype=bf16 residual=add",
        "bias_activation rows=77 columns=771 dtype=fp16",
        "elementwise n=1000003 dtype=bf16 y_dtype=fp32 formula=a*x+y",
        "elementwise n=65536 dtype=fp32 out=fp8_e4m3 formula=silu(x)*y",
        "gated_activation rows=301 columns=1000 dtype=bf16 layout=packed",
        "gated_activation rows=77 columns=771 dtype=fp16 out=fp8_e4m3",
        "matmul m=127 n=264 k=1000 dtype=bf16",
        "matmul m=129 n=1001 k=517 dtype=fp16",
        "matmul m=512 n=1024 k=512 dtype=bf16",
        "matmul m=5 n=1001 k=1032 dtype=bf16",
        "matmul m=33 n=264 k=2056 dtype=fp16",
        "matmul m=127 n=264 k=1000 dtype=bf16 bias=column residual=add",
        "matmul m=9 n=1001 k=1000 dtype=fp16 bias=column activation=silu residual=add",
        "rmsnorm rows=77 columns=771 dtype=fp32",
        "matmul m=300 n=264 k=1000 dtype=bf16 activation=silu gate=stacked",
        "matmul m=300 n=261 k=517 dtype=fp16 activation=silu gate=stacked b_layout=kn",
        "matmul m=33 n=261 k=1027 dtype=bf16 activation=silu gate=stacked",
        "matmul m=9 n=1001 k=2056 dtype=bf16 activation=gelu_tanh gate=stacked",
        "matmul m=300 n=261 k=1027 dtype=bf16",
        "matmul m=300 n=5 k=4097 dtype=fp16",
        "matmul m=5 n=1001 k=1031 dtype=bf16",
        "matmul m=300 n=264 k=1040 dtype=fp8_e4m3 out=bf16",
        "matmul m=300 n=261 k=1027 dtype=fp8_e4m3 out=bf16 accumulate=fast",
        "matmul m=9 n=1001 k=1037 dtype=fp8_e4m3 out=fp16",
        "matmul m=300 n=264 k=1000 dtype=fp32 tf32=allow",
        "matmul m=300 n=261 k=517 dtype=fp32 tf32=allow bias=column residual=add",
        "matmul m=9 n=1001 k=1031 dtype=fp32 tf32=allow",
        "matmul m=300 n=264 k=520 dtype=bf16 b_layout=kn",
        "matmul m=17 n=1000 k=1033 dtype=fp16 b_layout=kn",
        "rmsnorm rows=301 columns=4104 dtype=bf16",
        "rmsnorm rows=3 columns=16384 dtype=bf16",
        "rmsnorm rows=1003 columns=1024 dtype=fp16 residual=add",
        "layernorm rows=301 columns=771 dtype=bf16 residual=add",
        "layernorm rows=1003 columns=1024 dtype=fp32",
        "softmax rows=301 columns=771 dtype=fp16",
        "softmax rows=3003 columns=1024 dtype=bf16 mask=causal",
        "softmax rows=301 columns=1000 dtype=fp32 mask=additive",
        "reduce rows=301 columns=771 dtype=bf16 kind=mean",
        "reduce rows=301 columns=773 dtype=bf16 out=fp32 over=tensor",
        "rope tokens=301 heads=7 kv_heads=3 head_dim=128 dtype=bf16 append=cache",
        "rope tokens=77 heads=5 kv_heads=1 head_dim=6 dtype=fp16 pairs=neighbours",
        "attention_merge parts=5 batch=2 heads=3 q_len=50 head_dim_v=72 dtype=bf16 lse=natural",
        "attention_merge parts=13 batch=3 heads=5 q_len=1 head_dim_v=128 dtype=fp32 out=bf16",
        "attention_schedule batch=77 slots=33 q_len=4 kv_len=3000 kv_total=50000",
        "attention_schedule batch=5 slots=132 q_len=9 kv_len=40000 q_total=12 kv_total=50000 "
        "lengths=ragged",
        "argmax rows=1 columns=151936 dtype=bf16",
        "argmax rows=33 columns=1001 dtype=fp32",
        "embedding tokens=33 hidden=1000 vocabulary=700 dtype=bf16 lengths=advance",
        "embedding tokens=5 hidden=333 vocabulary=50 dtype=fp16",
        "kv_append batch=2 kv_heads=2 heads=4 q_len=37 kv_len=20 head_dim=72 dtype=bf16 rope=qk",
        "kv_append batch=5 kv_heads=2 q_len=40 kv_len=90 q_total=101 kv_total=260 head_dim=64 "
        "dtype=fp16 lengths=ragged",
        "kv_append batch=3 kv_heads=4 q_len=21 kv_len=150 kv_total=300 head_dim=128 dtype=bf16 "
        "kv=fp8_e4m3 lengths=kv cache=paged rope=k",
        "kv_append batch=33 kv_heads=8 heads=16 q_len=1 kv_len=700 kv_total=9000 head_dim=128 "
        "dtype=bf16 lengths=kv cache=paged rope=qk norm=rms",
        "vector_add n=1000003 dtype=bf16",
        "vector_add n=65536 dtype=fp32"}) {
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen = defaults(list);
    for (const KernelTemplate& kernel_template : catalog_->templates()) {
      for (const std::size_t one : some(list, kernel_template.name, 4)) chosen.push_back(one);
    }
    check(problem, list, chosen, 21, Runner::CheckDepth::finalist);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TemplatesGpuTest, AWrongKernelIsRefused) {
  const ScopedTempDir directory;
  const auto write = [&](std::string_view name, std::string_view text) {
    const auto done = publish_file(directory / concat("vector_add/wrong/", name), text);
    ASSERT_TRUE(done) << done.error().message;
  };
  // MISTAKE 0 is right, 1 leaves the last element out, 2 adds a to itself in one element.
  write("kernel.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void vector_add_wrong(const dtype_t* a, const dtype_t* b, dtype_t* c,
                                            long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n || (MISTAKE == 1 && i == n - 1)) return;
  const float y = to_float(MISTAKE == 2 && i == 1234 ? a[i] : b[i]);
  c[i] = from_float<dtype_t>(to_float(a[i]) + y);
})");
  write("manifest.json", R"json({
    "operation": "vector_add", "description": "wrong on purpose", "source": "kernel.cu",
    "arch": {"min": 80}, "when": [], "dims": {"n": "runtime"},
    "parameters": {"MISTAKE": [0, 1, 2]}, "default": {"MISTAKE": 0}, "derived": {}, "rules": [],
    "spill_bytes": 0,
    "launches": [{"kernel": "vector_add_wrong", "grid": ["ceil_div(n, 256)"], "block": ["256"],
      "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"int64": "n"}]}]})json");
  ASSERT_NO_FATAL_FAILURE(load_catalog({directory.path()}));
  const BoundProblem problem = bound("vector_add n=5000 dtype=bf16");
  const CandidateList list = enumerate(problem);
  const auto runner = open_runner(problem);
  ASSERT_TRUE(runner) << runner.error().message;
  int seen = 0;
  for (const Candidate& candidate : list.candidates) {
    if (candidate.kernel_template->name != "vector_add/wrong") continue;
    ++seen;
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto prepared = runner.value()->prepare(candidate, *kernel.value());
    ASSERT_TRUE(prepared);
    const auto checked = runner.value()->check(prepared.value().id, Runner::CheckDepth::screening);
    ASSERT_TRUE(checked) << checked.error().message;
    const std::int64_t mistake = candidate.configuration.at("MISTAKE");
    EXPECT_EQ(checked.value().step.outcome, mistake == 0 ? Outcome::ok : Outcome::wrong_result);
    EXPECT_EQ(checked.value().report.mismatches, mistake == 0 ? 0 : 1);
    if (mistake == 1) {
      EXPECT_TRUE(checked.value().report.first_mismatch.starts_with("c[4999]: "));
    }
    if (mistake == 2) {
      EXPECT_TRUE(checked.value().report.first_mismatch.starts_with("c[1234]: "));
    }
  }
  EXPECT_EQ(seen, 3);
}

TEST_F(TemplatesGpuTest, ASessionTunesEveryOperationsExample) {
  for (const Operation& op : catalog_->operations()) {
    const BoundProblem problem = BoundProblem::bind(op, op.example).value();
    SCOPED_TRACE(problem.text());
    const auto runner = open_device_runner(*device_, *ops_, problem, *catalog_, *pool_, {});
    ASSERT_TRUE(runner) << runner.error().message;
    TuningOptions options;
    options.budget.seconds = 8;
    options.budget.trials = 40;
    TuningSession session({.catalog = *catalog_,
                           .problem = problem,
                           .profile = device_->profile(),
                           .pool = *pool_,
                           .key = {problem.text(), "sm_90", device_->profile().id, {}},
                           .environment = {}});
    const auto result = session.run(*runner.value(), options);
    ASSERT_TRUE(result) << result.error().message;
    const TuningRecord& record = result.value().record;
    EXPECT_LE(record.check.max_error, 1);
    // Faster than the floor would mean that the work was not done.
    EXPECT_GT(record.winner.measurement.median_us(), 0.9 * record.roofline_us);
    for (const Trial& trial : result.value().trials) {
      EXPECT_NE(trial.outcome, Outcome::wrong_result) << trial.choice.id() << ": " << trial.detail;
      EXPECT_NE(trial.outcome, Outcome::launch_failed) << trial.choice.id() << ": " << trial.detail;
    }
  }
}

}  // namespace
}  // namespace kernwright
