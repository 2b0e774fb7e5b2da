// Matrix products of a batch, and of rows with gaps, within wider matrices.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

class MatmulStridesGpuTest : public TemplateChecks {
 protected:
  /// Every size with every kind.
  static std::vector<std::string> problems(const std::vector<std::string>& sizes,
                                           const std::vector<std::string>& kinds) {
    std::vector<std::string> all;
    for (const std::string& size : sizes) {
      for (const std::string& kind : kinds) all.push_back(concat("matmul ", size, " ", kind));
    }
    return all;
  }
};

TEST_F(MatmulStridesGpuTest, DefaultsAreRightWhereRowsLieApart) {
  check_defaults(problems(
      {
          "m=1 n=4096 k=2048 lda=6144",            // the first columns of a wider matrix
          "m=13 n=1001 k=1000 lda=1008 ldd=1008",  // rows that start at addresses that TMA can take
          "m=13 n=1001 k=1000 lda=1003 ldb=1000",  // rows of a that do not
          "m=61 n=264 k=72 lda=80 ldb=75 ldd=265",
          "m=127 n=127 k=7 lda=8 ldb=16 ldd=128",
          "m=129 n=1000 k=40 lda=100 ldb=48 ldd=3000",
          "m=300 n=3 k=1000 lda=1001 ldb=1024 ldd=5",
          "m=1500 n=1608 k=264 lda=272 ldb=4096 ldd=1616",
          "m=1500 n=1603 k=259 lda=264 ldd=1608",
      },
      {"dtype=bf16", "dtype=fp16 out=fp32 bias=column residual=add",
       "dtype=fp8_e4m3 out=bf16 scaling=alpha", "dtype=bf16 activation=silu residual=scaled",
       "dtype=fp32 tf32=allow"}));
}

TEST_F(MatmulStridesGpuTest, DefaultsAreRightOfABatch) {
  check_defaults(problems(
      {"m=1 n=7 k=8 batch=2", "m=13 n=1001 k=24 batch=9", "m=16 n=512 k=512 batch=5",
       "m=61 n=264 k=72 batch=3", "m=127 n=127 k=7 batch=4", "m=128 n=136 k=64 batch=133",
       "m=129 n=1000 k=40 batch=7", "m=300 n=3 k=1000 batch=3", "m=1008 n=1608 k=264 batch=3",
       "m=500 n=1603 k=259 batch=2", "m=70 n=200 k=128 batch=5 lda=136 ldb=384 ldd=208",
       "m=70 n=203 k=129 batch=5 lda=131 ldb=300 ldd=204"},
      {"dtype=bf16", "dtype=fp16 out=fp32", "dtype=bf16 bias=column activation=silu residual=add",
       "dtype=fp8_e4m3 out=bf16 scaling=alpha", "dtype=fp32 tf32=allow"}));
}

TEST_F(MatmulStridesGpuTest, DefaultsAreRightOfOtherLayoutsAndGates) {
  check_defaults(
      problems({"m=13 n=1001 k=24 batch=3", "m=61 n=264 k=72 ldd=300", "m=129 n=1000 k=64 batch=3",
                "m=127 n=127 k=7 batch=2 lda=8 ldd=129", "m=1500 n=808 k=256 lda=264 batch=2"},
               {"dtype=bf16 b_layout=kn ldb=2008", "dtype=fp16 b_layout=kn ldb=2003",
                "dtype=bf16 b_layout=kn", "dtype=bf16 activation=silu gate=stacked",
                "dtype=bf16 activation=silu gate=stacked ldb=264",
                "dtype=fp16 activation=gelu_tanh gate=stacked b_layout=kn ldb=2008"}));
}

TEST_F(MatmulStridesGpuTest, RandomConfigurationsOfEachAreRight) {
  check_random_configurations(
      {"matmul m=333 n=200 k=328 batch=3 lda=336 ldb=400 ldd=208 dtype=bf16",
       "matmul m=1104 n=1096 k=320 batch=5 dtype=bf16",
       "matmul m=77 n=75 k=99 batch=3 lda=101 ldb=100 ldd=77 dtype=fp16",
       "matmul m=12 n=1000 k=1024 batch=4 lda=3072 ldd=2000 dtype=bf16",
       "matmul m=272 n=264 k=256 batch=7 dtype=bf16 activation=silu",
       "matmul m=600 n=600 k=512 batch=3 ldb=1200 dtype=fp16 b_layout=kn",
       "matmul m=1104 n=1096 k=322 batch=5 lda=324 dtype=fp32 tf32=allow"},
      30);
}

TEST_F(MatmulStridesGpuTest, FinalistsStayWithinTheirRows) {
  check_finalists({"matmul m=13 n=1000 k=1000 lda=1008 ldb=1003 ldd=1024 dtype=bf16",
                   "matmul m=16 n=512 k=512 batch=3 lda=1536 ldd=1024 dtype=bf16",
                   "matmul m=300 n=264 k=320 batch=2 lda=328 ldb=640 ldd=272 dtype=bf16"});
}

}  // namespace
}  // namespace kernwright
