// The contract of the operation mla_attention, and which of its templates takes a problem.

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

using TextSet = std::set<std::string>;

BoundProblem latent_problem(std::string_view more) {
  return catalog().bind(Problem::parse(concat("mla_attention ", more)).value()).value();
}

/// Returns the templates that have a candidate for a problem.
TextSet templates_taking(std::string_view sku, std::string_view more) {
  const DeviceProfile profile = *find_profile(std::string(sku));
  const BoundProblem problem = latent_problem(more);
  TextSet names;
  for (const KernelTemplate* made : catalog().templates_of("mla_attention")) {
    if (!applies(*made, problem, profile)) continue;
    if (!valid_candidates(*made, problem, profile).empty()) names.insert(made->name);
  }
  return names;
}

TEST(MlaAttentionContractTest, TheFallbackTakesWhatWgmmaCannot) {
  const TextSet both{"mla_attention/swapped", "mla_attention/tiled"}, tiled{"mla_attention/tiled"};
  const std::string usual = "batch=4 heads=16 kv_len=900 dtype=bf16 ";
  for (const char* more : {"", "page=1", "page=48", "latent=448", "rotary=none", "keys=apart",
                           "q_len=3", "lengths=full cache=contiguous query=split"}) {
    EXPECT_EQ(templates_taking("h200", usual + more), both) << more;
    EXPECT_EQ(templates_taking("a100_80", usual + more), tiled) << more;
  }
  for (const char* more : {"page=5", "latent=40", "latent=576", "rope=12", "rope=72", "ldq=9217",
                           "ld_cache=577", "keys=apart ld_rope=66"}) {
    EXPECT_EQ(templates_taking("h200", usual + more), tiled) << more;
  }
}

TEST(MlaAttentionContractTest, OneTemplateAndOneCutOfTheKeysDecideTheBitsOfASequence) {
  const char* const batches[] = {"batch=1 kv_len=70", "batch=7 kv_len=3000 kv_total=4000",
                                 "batch=200 kv_len=70000 kv_total=150000"};
  for (const char* sku : {"h200", "a100_80"}) {
    for (const char* fixed : {"heads=16", "heads=20 q_len=2", "heads=3 latent=40"}) {
      TextSet cuts;
      for (const char* batch : batches) {
        const BoundProblem problem =
            latent_problem(concat(batch, " ", fixed, " dtype=bf16 invariant=batch"));
        const DeviceProfile profile = *find_profile(sku);
        for (const KernelTemplate* made : catalog().templates_of("mla_attention")) {
          if (!applies(*made, problem, profile)) continue;
          for (const Candidate& candidate : valid_candidates(*made, problem, profile)) {
            std::string cut = made->name;
            for (const char* name : {"WGS", "CLUSTER", "TILE", "SPLIT"}) {
              const auto value = candidate.scope.find(name);
              if (value) cut += concat(" ", name, "=", *value);
            }
            cuts.insert(cut);
          }
        }
      }
      EXPECT_EQ(cuts.size(), 1U) << sku << ' ' << fixed;
    }
  }
}

TEST(MlaAttentionContractTest, WhatDoesNotFitIsRefusedWithTheReason) {
  const std::string usual = "mla_attention batch=4 heads=16 kv_len=900 dtype=bf16 ";
  const struct {
    const char* more;
    const char* why;
  } refused[] = {
      {"rotary=none rope=64", "without a rotated part it has no size"},
      {"rotary=none query=split", "are one tensor each"},
      {"ldq=9000", "a token of q has so many elements"},
      {"ldq_rope=64", "only query=split has one"},
      {"ld_cache=512", "a token of the cache has so many elements"},
      {"cache=contiguous page=64", "only a paged cache has pages"},
      {"pages=59", "the pages of all sequences lie in the pool"},
      {"lengths=full kv_total=900", "only with lengths=kv or ragged"},
  };
  for (const auto& [more, why] : refused) {
    const auto problem = catalog().bind(Problem::parse(usual + more).value());
    ASSERT_FALSE(problem) << more;
    EXPECT_NE(problem.error().message.find(why), std::string::npos) << problem.error().message;
  }
}

TEST(MlaAttentionContractTest, BytesAreEachLatentOnce) {
  const BoundProblem problem = latent_problem("batch=2 heads=16 kv_len=4096 dtype=bf16");
  EXPECT_EQ(problem.operation().bytes.evaluate(problem.scope()).value(),
            2 * 4096 * 576 * 2 + 2 * 16 * (576 + 512) * 2);
  EXPECT_EQ(problem.operation().flops.evaluate(problem.scope()).value(),
            2LL * 2 * 16 * 4096 * (576 + 512));
  // Of three queries the last sees all keys, and each before it one less.
  const BoundProblem three = latent_problem("batch=1 heads=1 q_len=3 kv_len=100 dtype=bf16");
  EXPECT_EQ(three.operation().specials->evaluate(three.scope()).value(), 98 + 99 + 100);
}

}  // namespace
}  // namespace kernwright
