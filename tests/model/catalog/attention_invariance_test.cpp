// The contract of attention with invariant=batch: one template takes a problem, with one value of
// every parameter that decides bits, however many and however long the other sequences are.

#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

/// Returns the parameters that decide the bits of a row: how keys are cut into tiles and parts and
/// in which order sums of these are added.
std::string deciding(const Candidate& candidate) {
  std::string all = candidate.kernel_template->name;
  const std::vector<std::string_view> names =
      all == "attention/stream" ? std::vector<std::string_view>{"WARPS", "CLUSTER", "SPLIT"}
      : all == "attention/wave" ? std::vector<std::string_view>{"BN", "SLACK"}
                                : std::vector<std::string_view>{"BN", "WARPS_K", "SPLIT"};
  for (const std::string_view name : names) {
    all += concat(" ", name, "=", *candidate.scope.find(name));
  }
  return all;
}

struct Family {
  std::string_view fixed;            ///< what the sequences of one promise share
  std::vector<std::string> batches;  ///< other neighbours
};

std::vector<Family> families() {
  const std::vector<std::string> full{"batch=1 kv_len=1500", "batch=64 kv_len=1500",
                                      "batch=3 kv_len=9", "batch=900 kv_len=40000"};
  const std::vector<std::string> some{"batch=1 kv_len=70", "batch=7 kv_len=70 kv_total=100",
                                      "batch=7 kv_len=70000 kv_total=80000",
                                      "batch=200 kv_len=1025 kv_total=150000"};
  const std::vector<std::string> ragged{
      "batch=1 q_len=1 kv_len=70", "batch=7 q_len=1 kv_len=3000 kv_total=4000",
      "batch=7 q_len=40 q_total=46 kv_len=3000 kv_total=4000",
      "batch=90 q_len=900 q_total=5000 kv_len=20000 kv_total=100000"};
  return {
      {"heads=32 kv_heads=8 head_dim=128 q_len=1", full},
      {"heads=32 kv_heads=8 head_dim=128 q_len=300 mask=causal", full},
      {"heads=16 head_dim=256 q_len=8 mask=causal", full},
      {"heads=32 kv_heads=8 head_dim=128 q_len=1 kv=fp8_e4m3", full},
      {"heads=32 kv_heads=8 head_dim=128 q_len=200 mask=causal kv=fp8_e4m3", full},
      {"heads=64 kv_heads=2 head_dim=256 q_len=1", full},
      {"heads=64 kv_heads=8 head_dim=64 q_len=1 mask=window window=128 sink=head lengths=kv", some},
      {"heads=32 kv_heads=8 head_dim=128 q_len=2 mask=causal lengths=kv cache=paged page=16", some},
      {"heads=32 kv_heads=8 head_dim=128 q_len=1 lengths=kv cache=paged page=24", some},
      {"heads=32 kv_heads=8 head_dim=128 q_len=90 lengths=kv cache=paged page=192", some},
      {"heads=8 kv_heads=2 head_dim=192 head_dim_v=128 q_len=64 lengths=kv lse=natural", some},
      {"heads=32 kv_heads=8 head_dim=128 mask=causal lengths=ragged", ragged},
      {"heads=8 head_dim=256 mask=causal lengths=ragged", ragged},
      {"heads=8 head_dim=64 mask=window window=300 lengths=ragged cache=paged page=64", ragged},
      {"heads=8 kv_heads=4 head_dim=256 lengths=ragged cache=paged page=1", ragged},
  };
}

TEST(AttentionInvarianceTest, OneValueOfWhateverDecidesBits) {
  for (const char* sku : {"h200", "b200", "a100_80", "rtx_4090"}) {
    const DeviceProfile profile = *find_profile(sku);
    for (const Family& family : families()) {
      std::set<std::string> values;
      for (const std::string& batch : family.batches) {
        const BoundProblem problem =
            catalog()
                .bind(Problem::parse(concat("attention ", batch, " ", family.fixed,
                                            " dtype=bf16 invariant=batch"))
                          .value())
                .value();
        std::size_t candidates = 0;
        for (const KernelTemplate* made : catalog().templates_of("attention")) {
          if (!applies(*made, problem, profile)) continue;
          for (const Candidate& candidate : valid_candidates(*made, problem, profile)) {
            values.insert(deciding(candidate));
            ++candidates;
          }
        }
        EXPECT_GE(candidates, 2U) << sku << ' ' << problem.text();
      }
      EXPECT_EQ(values.size(), 1U) << sku << ' ' << family.fixed;
    }
  }
}

}  // namespace
}  // namespace kernwright
