// The contract of products with invariant=batch: one template takes a problem, and adds the
// products of a sum in one order, however many rows and products there are.

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

BoundProblem invariant(std::string_view sizes, std::string_view fixed) {
  return must(catalog().bind(
      must(Problem::parse(concat("matmul ", sizes, " ", fixed, " invariant=batch")))));
}

/// Returns the template, and the parameter that decides the order of a sum.
std::string deciding(const Candidate& candidate) {
  const std::string& name = candidate.kernel_template->name;
  return concat(name, ' ', *candidate.scope.find(name == "matmul/tiled" ? "WARPS_K" : "SPLIT"));
}

const std::vector<std::string_view> kFixed = {
    "n=6144 k=4096 dtype=bf16",
    "n=4096 k=14336 dtype=fp16 bias=column residual=add",
    "n=6144 k=4096 n_kv=1024 dtype=bf16 split=qkv",
    "n=1003 k=517 dtype=bf16",
    "n=1003 k=517 dtype=bf16 bias=column",
    "n=4096 k=1000 dtype=bf16 b_layout=kn",
    "n=4096 k=1024 dtype=bf16 b_layout=kn",
    "n=4096 k=4096 dtype=fp8_e4m3 out=bf16 scaling=alpha",
    "n=4096 k=4096 dtype=fp8_e4m3",
    "n=1024 k=1024 dtype=fp32 tf32=allow",
    "n=1024 k=1024 dtype=bf16 activation=silu gate=stacked"};

TEST(MatmulInvarianceTest, OneTemplateAndOneOrderForAllRows) {
  for (const char* sku : {"h200", "b200", "a100_80"}) {
    const DeviceProfile profile = *find_profile(sku);
    for (const std::string_view fixed : kFixed) {
      std::set<std::string> values;
      for (const char* sizes : {"m=1", "m=5", "m=16", "m=40", "m=600", "m=9000", "m=33 batch=3"}) {
        if (fixed.find("split") != fixed.npos && std::string_view(sizes).ends_with("batch=3"))
          continue;
        const BoundProblem problem = invariant(sizes, fixed);
        const CandidateList list = must(enumerate_candidates(catalog(), problem, profile));
        EXPECT_GE(list.candidates.size(), 2U) << sku << ' ' << problem.text();
        for (const Candidate& candidate : list.candidates) values.insert(deciding(candidate));
      }
      EXPECT_EQ(values.size(), 1U) << sku << ' ' << fixed;
      const bool on_hopper = std::string_view(sku) == "h200";
      if (!on_hopper) {
        EXPECT_EQ(*values.begin(), "matmul/tiled 1");
      } else if (fixed == kFixed.front()) {
        EXPECT_EQ(*values.begin(), "matmul/persistent_wave 1");
      }
    }
  }
}

TEST(MatmulInvarianceTest, OrdersOfTheirOwnAreRefused) {
  const auto refusal = [&](const char* sku, const char* name,
                           const std::map<std::string, std::int64_t>& changes) {
    const KernelTemplate& made_by = *must(catalog().kernel_template(name));
    auto values = made_by.default_configuration.values();
    for (auto& [key, value] : values) {
      if (const auto change = changes.find(key); change != changes.end()) value = change->second;
    }
    const auto candidate = make_candidate(made_by, invariant("m=64", "n=1024 k=4096 dtype=bf16"),
                                          Configuration(values), *find_profile(sku));
    return candidate ? std::string("accepted") : candidate.error().message;
  };
  const std::string wave = refusal("h200", "matmul/persistent_wave", {{"SPLIT", 2}});
  EXPECT_NE(wave.find("decides bits"), std::string::npos) << wave;
  const std::string tiled = refusal("a100_80", "matmul/tiled", {{"WARPS_K", 2}, {"BK", 64}});
  EXPECT_NE(tiled.find("decides bits"), std::string::npos) << tiled;
}

TEST(MatmulInvarianceTest, WhatCannotBePromisedIsRefused) {
  const auto refusal = [](const char* more) {
    const Result<BoundProblem> problem = catalog().bind(
        must(Problem::parse(concat("matmul m=4 n=1024 k=1024 invariant=batch ", more))));
    return problem ? std::string("accepted") : problem.error().message;
  };
  EXPECT_NE(refusal("dtype=bf16 norm=rms").find("sum of the squares"), std::string::npos);
  EXPECT_NE(refusal("dtype=fp8_e4m3 out=bf16 scaling=block").find("sums of blocks"),
            std::string::npos);
}

}  // namespace
}  // namespace kernwright
