// Plans of attention's templates for sizes at which kernels overflow, and for pages of any size.
// Only plans are made.

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

class AttentionLimitsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMostInt32 = std::numeric_limits<std::int32_t>::max();

  static BoundProblem problem(std::string_view text) {
    return *catalog().bind(Problem::parse(concat("attention ", text, " dtype=bf16")).value());
  }

  /// Calls visit(candidate) for all valid candidates of the templates that apply, and returns how
  /// many templates do.
  template <typename Visit>
  int each(const BoundProblem& of, const Visit& visit) const {
    int templates = 0;
    for (const KernelTemplate* made : catalog().templates_of("attention")) {
      if (!applies(*made, of, profile_)) continue;
      ++templates;
      for (const Candidate& candidate : valid_candidates(*made, of, profile_, 300)) {
        SCOPED_TRACE(concat(of.text(), ": ", candidate.id()));
        visit(candidate);
      }
    }
    return templates;
  }

  const DeviceProfile profile_ = *find_profile("h200");
};

TEST_F(AttentionLimitsTest, LargeCountsHavePlansInOneDimension) {
  for (const char* text :
       {"batch=70000 heads=2 q_len=1 kv_len=17 head_dim=64",
        "batch=70000 heads=2 q_len=70 kv_len=70 head_dim=64 mask=causal",
        "batch=1 heads=70000 q_len=70 kv_len=70 head_dim=64",
        "batch=1 heads=1 q_len=1 kv_len=4194304 head_dim=128",
        "batch=1 heads=1 q_len=4194304 kv_len=4194304 head_dim=128 mask=causal",
        "batch=1 heads=16 kv_heads=1 q_len=2097152 kv_len=1 head_dim=64",
        "batch=32 heads=64 kv_heads=8 q_len=1 kv_len=8192 head_dim=64 pages=1048576 lengths=kv "
        "cache=paged"}) {
    const BoundProblem large = problem(text);
    const int templates = each(large, [&](const Candidate& candidate) {
      for (const LaunchPlan& launch : candidate.plan.launches) {
        EXPECT_EQ(launch.grid[1], 1U);
        EXPECT_EQ(launch.grid[2], 1U);
        EXPECT_LE(launch.grid[0], kMostInt32);
        for (const ArgumentPlan& argument : launch.arguments) {
          if (argument.kind == ArgumentKind::int32) {
            EXPECT_GE(argument.value, 0);
            EXPECT_LE(argument.value, kMostInt32);
          }
        }
      }
      // attention/wave multiplies these in 32 bits.
      if (const auto section = candidate.scope.find("SECTION")) {
        const std::int64_t rows = *candidate.scope.find("q_len") / *candidate.scope.find("BM") + 1;
        EXPECT_LE(*section * rows, kMostInt32);
      }
    });
    EXPECT_GT(templates, 0) << text;
    const auto reference = make_reference_plan(large, profile_);
    ASSERT_TRUE(reference) << reference.error().message;
    EXPECT_LE(reference->launches.front().grid[0], 65535U);
  }
}

TEST_F(AttentionLimitsTest, SizesAreCountedIn64Bits) {
  const BoundProblem pool =
      problem("batch=1 heads=8 q_len=1 kv_len=4096 head_dim=128 cache=paged pages=1048576");
  EXPECT_EQ(pool.shapes()[1].bytes(), std::int64_t{1} << 35);
  const BoundProblem square =
      problem("batch=1 heads=32 q_len=4194304 kv_len=4194304 head_dim=128 mask=causal");
  const std::int64_t pairs = (std::int64_t{1} << 43) + (std::int64_t{1} << 21);
  EXPECT_EQ(square.operation().flops.evaluate(square.scope()).value(), 32 * 512 * pairs);
}

// A tile of keys consists of boxes, each a page or a part of one; a box of one key is copied by no
// TMA.
TEST_F(AttentionLimitsTest, NoTileOfKeysCrossesTheEndOfAPage) {
  for (const int page : {1, 5, 8, 24, 40, 64, 192, 1000}) {
    for (const char* queries : {"q_len=1", "q_len=300 mask=causal"}) {
      const BoundProblem paged =
          problem(concat("batch=2 heads=8 kv_heads=2 ", queries,
                         " kv_len=2099 head_dim=64 lengths=kv cache=paged page=", page));
      const int templates = each(paged, [&](const Candidate& candidate) {
        const auto box = candidate.scope.find("BOX_KEYS");
        if (!box) return;  // attention/tiled looks up every key
        const auto wave = candidate.scope.find("BN");
        EXPECT_EQ((wave ? *wave : *candidate.scope.find("TILE")) % *box, 0);
        EXPECT_EQ(page % *box, 0);
        EXPECT_TRUE(*box == 1 || *box % 8 == 0) << *box;
      });
      EXPECT_GE(templates, 2) << page;
    }
  }
}

TEST_F(AttentionLimitsTest, RowsThatAreCopiedOneByOneAreCountedIn32Bits) {
  using Names = std::set<std::string>;
  const Names one{"attention/stream", "attention/tiled", "attention/wave"};
  const Names many{"attention/tiled", "attention/wave"};
  for (const auto& [queries, all] : {std::pair("q_len=1", one), std::pair("q_len=300", many)}) {
    const auto names = [&, queries = queries](const char* pool) {
      Names found;
      each(problem(concat("batch=1 heads=1 kv_len=4096 head_dim=64 cache=paged ", queries, pool)),
           [&](const Candidate& candidate) { found.insert(candidate.kernel_template->name); });
      return found;
    };
    EXPECT_EQ(names(" page=3 pages=715827882"), all) << "2^31 - 2 rows";
    EXPECT_EQ(names(" page=3 pages=715827883"), Names{"attention/tiled"});
    EXPECT_EQ(names(" page=64 pages=715827883"), all) << "boxes are counted by pages";
  }
}

TEST_F(AttentionLimitsTest, KeysAreSplitOnEveryArchitecture) {
  const BoundProblem decode = problem("batch=1 heads=8 q_len=1 kv_len=8192 head_dim=128");
  for (const char* sku : {"a100_80", "rtx_4090", "h200", "b200"}) {
    const auto all = valid_candidates(**catalog().kernel_template("attention/tiled"), decode,
                                      *find_profile(sku));
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Candidate& candidate) {
      return candidate.configuration.at("SPLIT") > 0 && candidate.plan.launches.size() == 2;
    })) << sku;
  }
}

}  // namespace
}  // namespace kernwright
