// Matrix products whose columns go to q, k and v.

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

class MatmulSplitGpuTest : public TemplateChecks {};

TEST_F(MatmulSplitGpuTest, DefaultsAreRight) {
  std::vector<std::string> problems;
  for (const char* sizes :
       {"m=1 n=3 k=8", "m=1 n=6144 k=4096 n_kv=1024", "m=13 n=1001 k=24 n_kv=101",
        "m=16 n=1536 k=512", "m=61 n=264 k=72 n_kv=64", "m=127 n=127 k=7 n_kv=1",
        "m=129 n=1000 k=40 n_kv=104", "m=300 n=5 k=1000 n_kv=2", "m=777 n=12 k=1032",
        "m=1500 n=1664 k=264 n_kv=320",  // boxes of 64 columns fit q, k and v
        "m=1500 n=1680 k=264 n_kv=320", "m=1500 n=1603 k=259 n_kv=301"}) {
    for (const char* kind :
         {"dtype=bf16", "dtype=fp16 out=fp32 bias=column", "dtype=bf16 scaling=alpha bias=column",
          "dtype=bf16 out=fp8_e4m3", "dtype=fp8_e4m3 out=bf16 scaling=alpha",
          "dtype=bf16 b_layout=kn", "dtype=fp32 tf32=allow"}) {
      problems.push_back(concat("matmul ", sizes, " split=qkv ", kind));
    }
  }
  check_defaults(problems);
}

TEST_F(MatmulSplitGpuTest, DefaultsAreRightAtRandomWidths) {
  std::vector<std::string> problems;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto draw = [i](std::uint64_t what, std::uint64_t most) {
      return 1 + hash_at(9, 8 * i + what) % most;
    };
    // Half of the widths are multiples of 8, which vectors and TMA need.
    const std::uint64_t unit = i % 2 == 0 ? 8 : 1;
    const std::uint64_t n_q = unit * draw(0, i % 3 == 0 ? 40 : 900 / unit);
    const std::uint64_t n_kv = unit * draw(1, i % 5 == 0 ? 3 : 300 / unit);
    problems.push_back(concat("matmul m=", draw(2, i % 4 == 0 ? 16 : 700), " n=", n_q + 2 * n_kv,
                              " k=", draw(3, 300), " n_kv=", n_kv,
                              " split=qkv dtype=", i % 7 == 0 ? "fp16 bias=column" : "bf16"));
  }
  check_defaults(problems);
}

TEST_F(MatmulSplitGpuTest, RandomConfigurationsOfEachAreRight) {
  check_random_configurations(
      {"matmul m=1104 n=1664 k=320 n_kv=320 dtype=bf16 split=qkv",
       "matmul m=600 n=1344 k=512 n_kv=336 dtype=bf16 bias=column split=qkv",
       "matmul m=600 n=768 k=512 n_kv=128 dtype=bf16 out=fp32 split=qkv",
       "matmul m=333 n=203 k=329 n_kv=44 dtype=fp16 split=qkv",
       "matmul m=12 n=1000 k=1024 n_kv=100 dtype=bf16 split=qkv",
       "matmul m=50 n=70 k=4088 n_kv=17 dtype=fp16 bias=column split=qkv",
       "matmul m=777 n=11 k=1032 n_kv=3 dtype=bf16 split=qkv"},
      30);
}

TEST_F(MatmulSplitGpuTest, FinalistsStayWithinTheirTensors) {
  check_finalists({"matmul m=13 n=1000 k=1000 n_kv=104 dtype=bf16 split=qkv",
                   "matmul m=300 n=1664 k=320 n_kv=320 dtype=bf16 split=qkv",
                   "matmul m=301 n=1603 k=321 n_kv=301 dtype=bf16 bias=column split=qkv"});
}

}  // namespace
}  // namespace kernwright
