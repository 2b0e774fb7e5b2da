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

}  // namespace
}  // namespace kernwright
