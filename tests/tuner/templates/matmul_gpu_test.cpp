// Matrix products: what a template does in some of its configurations alone.

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

class MatmulGpuTest : public TemplateChecks {
 protected:
  int arch() const { return device_->profile().sm_arch; }

  /// Checks one of the `wanted` candidates for all values that `parameters` have together: at least
  /// `least` for each problem.
  void check_one_of_each(
      const std::vector<std::string>& problems, std::string_view kernel_template,
      const std::vector<std::string>& parameters, std::size_t least,
      const std::function<bool(const Candidate&)>& wanted = [](const Candidate&) { return true; }) {
    for (const std::string& text : problems) {
      const BoundProblem problem = bound(text);
      CandidateList list = enumerate(problem);
      std::erase_if(list.candidates, [&](const Candidate& one) { return !wanted(one); });
      const auto chosen = one_of_each(list, kernel_template, parameters);
      EXPECT_GE(chosen.size(), least) << text;
      check(problem, list, chosen, 5);
      if (HasFatalFailure()) return;
    }
  }
};

// Tiles that meet one block of scales or two, wait or not, and share operands in clusters.
TEST_F(MatmulGpuTest, TilesOfScaledBlocksAreRight) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  const std::vector<std::string> sizes{"matmul m=1501 n=1608 k=1040 dtype=fp8_e4m3 out=bf16",
                                       "matmul m=1500 n=3083 k=515 dtype=fp8_e4m3 out=bf16"};
  std::vector<std::string> problems;
  for (const std::string& size : sizes) problems.push_back(concat(size, " scaling=block"));
  check_one_of_each(problems, "matmul/persistent_wave", {"BM", "BN", "OVERLAP", "CM"}, 12);
  check_one_of_each({"matmul m=64 n=2112 k=7168 dtype=fp8_e4m3 out=bf16 scaling=block",
                     "matmul m=7 n=1000 k=4230 dtype=fp8_e4m3 out=bf16 scaling=block"},
                    "matmul/skinny", {"BN", "BK", "SPLIT", "SLICES"}, 8);
}

// Scales of rows in every kind of tile: those that wait, take turns, and share operands, parts of
// k, and results that are transposed.
TEST_F(MatmulGpuTest, TilesOfScaledRowsAreRight) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  for (const char* dtype : {"int8", "fp8_e4m3"}) {
    const auto of = [&](std::string_view text) {
      return concat("matmul ", text, " scaling=row dtype=", dtype, " out=");
    };
    check_one_of_each({of("m=1501 n=1608 k=1040") + "bf16",
                       of("m=1500 n=3088 k=515 bias=column residual=add") + "fp16",
                       of("m=751 n=1612 k=1040 batch=2 activation=silu") + "fp32"},
                      "matmul/persistent_wave", {"BM", "OVERLAP", "PINGPONG", "CM"}, 6);
    check_one_of_each({of("m=1500 n=808 k=528 activation=silu gate=stacked") + "bf16",
                       of("m=700 n=408 k=1040 batch=3 gate=stacked") + "bf16"},
                      "matmul/persistent_wave", {"BM", "OVERLAP"}, 3);
    check_one_of_each({of("m=7 n=1001 k=8230") + "bf16", of("m=777 n=11 k=4112") + "bf16",
                       of("m=5 n=1000 k=4112 batch=3 activation=silu gate=stacked") + "bf16"},
                      "matmul/skinny", {"SPLIT", "SLICES"}, 8);
    check_one_of_each({of("m=77 n=203 k=1037 batch=2 bias=column") + "bf16",
                       of("m=77 n=203 k=1040 gate=stacked") + "fp8_e4m3"},
                      "matmul/tiled", {"BN", "WARPS_K"}, 8);
  }
}

// More tiles than multiprocessors, so that tiles wait; k that ends before they have left and after.
TEST_F(MatmulGpuTest, TilesFinishedDuringTheNextAreRight) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  std::uint64_t seed = 500;
  for (const char* text :
       {"matmul m=1500 n=3080 k=72 dtype=bf16 bias=column activation=gelu_tanh",
        "matmul m=3100 n=3080 k=520 dtype=fp16 scaling=alpha bias=column activation=gelu_erf",
        "matmul m=1500 n=3083 k=515 dtype=bf16 activation=silu",
        "matmul m=1500 n=3080 k=1096 dtype=bf16 b_layout=kn activation=gelu_tanh",
        "matmul m=3100 n=1608 k=520 dtype=bf16 activation=silu gate=stacked",
        "matmul m=1501 n=1603 k=72 dtype=fp16 activation=gelu_tanh gate=stacked scaling=alpha",
        "matmul m=1500 n=3080 k=520 dtype=bf16 b_layout=kn gate=stacked",
        "matmul m=1500 n=3080 k=1040 dtype=fp8_e4m3 out=bf16 bias=column activation=silu",
        "matmul m=3100 n=3080 k=144 dtype=fp8_e4m3 out=fp16 accumulate=fast activation=gelu_erf",
        "matmul m=1500 n=1608 k=528 dtype=fp8_e4m3 out=bf16 activation=silu gate=stacked",
        "matmul m=1500 n=3080 k=516 dtype=fp32 tf32=allow out=bf16 activation=silu"}) {
    const BoundProblem problem = bound(text);
    CandidateList list = enumerate(problem);
    std::erase_if(list.candidates, [](const Candidate& candidate) {
      return candidate.scope.find("LATE").value_or(0) == 0;
    });
    const auto chosen = some(list, "matmul/persistent_wave", 8);
    EXPECT_GE(chosen.size(), 4U) << text;
    check(problem, list, chosen, seed++);
    if (HasFatalFailure()) return;
  }
}

TEST_F(MatmulGpuTest, PersistentWaveIsRightAtEveryWidthAndCluster) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  check_one_of_each(
      {"matmul m=500 n=777 k=1000 dtype=bf16", "matmul m=777 n=1016 k=520 dtype=fp16 residual=add",
       "matmul m=1000 n=1000 k=264 dtype=bf16 out=fp32 residual=scaled",
       "matmul m=300 n=600 k=400 dtype=bf16 activation=silu gate=stacked",
       "matmul m=500 n=1000 k=512 dtype=bf16 b_layout=kn",
       "matmul m=400 n=1200 k=640 dtype=fp8_e4m3 out=bf16",
       "matmul m=1500 n=4000 k=136 dtype=bf16 bias=column activation=gelu_tanh"},
      "matmul/persistent_wave", {"BN", "CM", "CN"}, 12);
}

// The last tiles of a cluster may be beyond the last row, and its producers wait for all stages.
TEST_F(MatmulGpuTest, SkinnyIsRightWhereAClusterSharesRows) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  check_one_of_each(
      {"matmul m=986 n=328 k=17160 dtype=bf16", "matmul m=1392 n=536 k=680 dtype=bf16",
       "matmul m=200 n=1000 k=440 dtype=fp16 b_layout=kn",
       "matmul m=200 n=1000 k=1033 dtype=fp16 bias=column activation=silu",
       "matmul m=300 n=1000 k=1040 dtype=fp8_e4m3 out=bf16 accumulate=fast"},
      "matmul/skinny", {"STAGES", "AHEAD"}, 2,
      [](const Candidate& candidate) { return candidate.configuration.at("CM") > 1; });
}

TEST_F(MatmulGpuTest, PersistentWaveIsRightTransposed) {
  if (arch() != 90) GTEST_SKIP() << "for Hopper alone";
  check_one_of_each(
      {"matmul m=296 n=1608 k=520 dtype=bf16", "matmul m=300 n=20008 k=200 dtype=fp16",
       "matmul m=1213 n=6008 k=1033 dtype=bf16 scaling=alpha activation=silu",
       "matmul m=90 n=1000 k=264 ldd=1008 dtype=bf16",
       "matmul m=395 n=9000 k=1040 dtype=fp8_e4m3 out=bf16",
       "matmul m=140 n=4008 k=260 dtype=fp32 tf32=allow out=bf16"},
      "matmul/persistent_wave", {"BM", "BN", "CM", "CN"}, 4,
      [](const Candidate& candidate) { return candidate.configuration.at("TRANSPOSED") == 1; });
}

TEST_F(MatmulGpuTest, DirectIsRightWhereAClusterSharesK) {
  if (arch() < 90) GTEST_SKIP() << "clusters need sm_90";
  check_one_of_each(
      {"matmul m=1 n=1 k=65536 dtype=bf16", "matmul m=5 n=101 k=8197 dtype=fp16 residual=add",
       "matmul m=13 n=120 k=4104 dtype=bf16 bias=column activation=silu",
       "matmul m=100 n=7 k=5000 dtype=bf16",
       "matmul m=8 n=60 k=4096 dtype=fp16 activation=silu gate=stacked",
       "matmul m=3 n=40 k=2056 batch=3 dtype=bf16", "matmul m=13 n=120 k=4104 dtype=bf16 norm=rms"},
      "matmul/direct", {"BM", "BN", "UNROLL", "WARPS"}, 2,
      [](const Candidate& candidate) { return candidate.configuration.at("SPLIT") > 1; });
}

}  // namespace
}  // namespace kernwright
