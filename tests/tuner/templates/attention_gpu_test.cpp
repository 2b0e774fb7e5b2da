// Attention on a device: candidates at the pairwise problems, and what its users run into.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "support/random.h"
#include "support/text.h"
#include "tests/model/attention_problems.h"
#include "tests/tuner/templates/template_checks.h"

namespace kernwright {
namespace {

/// A part of the pairwise problems, so that a part stays a matter of a minute or two.
class AttentionPairwiseGpuTest : public TemplateChecks, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr std::size_t kParts = 8;
  static constexpr std::size_t kCandidatesOfTemplate = 1;
  static constexpr std::size_t kAhead = 16;  ///< problems whose candidates compile side by side

  struct Chosen {
    BoundProblem problem;
    CandidateList list;
    std::vector<std::size_t> candidates;
    std::vector<Build> builds;
  };

  /// Candidates of every template that applies: others at each problem, though many lists are
  /// alike.
  Chosen choose(const std::string& text, std::size_t number) {
    Chosen chosen{bound(text), {}, {}, {}};
    chosen.list = enumerate(chosen.problem);
    for (const KernelTemplate* made : catalog_->templates_of("attention")) {
      std::vector<std::size_t> all = some(chosen.list, made->name, chosen.list.candidates.size());
      for (std::size_t k = 0; k < std::min(kCandidatesOfTemplate, all.size()); ++k) {
        std::swap(all[k], all[k + hash_at(number, k) % (all.size() - k)]);
        chosen.candidates.push_back(all[k]);
      }
    }
    chosen.builds = compile(chosen.list, chosen.candidates);
    return chosen;
  }

  /// Checks candidates of this part of the problems. Returns the number of these.
  std::size_t check_part(const std::vector<std::string>& texts);
};

std::size_t AttentionPairwiseGpuTest::check_part(const std::vector<std::string>& texts) {
  std::deque<Chosen> waiting;
  std::size_t next = static_cast<std::size_t>(GetParam());
  std::size_t checked = 0;
  while (next < texts.size() || !waiting.empty()) {
    while (next < texts.size() && waiting.size() < kAhead) {
      waiting.push_back(choose(texts[next], next));
      next += kParts;
    }
    const Chosen one = std::move(waiting.front());
    waiting.pop_front();
    EXPECT_FALSE(one.candidates.empty()) << one.problem.text();
    check(one.problem, one.list, one.candidates, one.builds, 200 + checked,
          Runner::CheckDepth::screening);
    if (HasFatalFailure()) break;
    ++checked;
  }
  return checked;
}

TEST_P(AttentionPairwiseGpuTest, ACandidateOfEachTemplateIsRight) {
  std::vector<std::string> texts = attention_problems();
  for (std::string& text : attention_fp8_problems()) texts.push_back(std::move(text));
  if (device_->profile().sm_arch == 90) {
    for (std::string& text : attention_append_problems()) texts.push_back(std::move(text));
  }
  EXPECT_GT(check_part(texts), 40U);
}

TEST_P(AttentionPairwiseGpuTest, ACandidateOfEachTemplateIsRightWithABias) {
  EXPECT_GT(check_part(attention_bias_problems()), 5U);
}

INSTANTIATE_TEST_SUITE_P(Parts, AttentionPairwiseGpuTest, ::testing::Range(0, 8));

class AttentionGpuTest : public TemplateChecks {};

// More sequences than a grid has in its other dimensions, and so many tiles of queries that their
// number times the number of heads passes 32 bits if neither is limited.
TEST_F(AttentionGpuTest, LargeCountsAreRight) {
  check_defaults({"attention batch=70000 heads=2 q_len=1 kv_len=17 head_dim=64 dtype=bf16",
                  "attention batch=1 heads=8 kv_heads=1 q_len=270000 kv_len=1 head_dim=64 "
                  "dtype=bf16"});
}

// Pages beyond 2^31 elements and 4 GiB, first of k and then of v; as boxes, and row by row.
TEST_F(AttentionGpuTest, PoolsOfMoreThan4GiBAreRead) {
  constexpr std::int64_t kNeeded = std::int64_t{48} << 30;  // five sets of 6 GB, and their results
  if (!device_->allocate(kNeeded)) GTEST_SKIP() << "the device has no 48 GiB free";
  for (const char* form : {"head_dim=256 head_dim_v=8 page=16 pages=280000",
                           "head_dim=64 head_dim_v=256 page=16 pages=280000",
                           "head_dim=256 head_dim_v=8 page=1 pages=4480000",
                           "head_dim=64 head_dim_v=256 page=1 pages=4480000"}) {
    const BoundProblem problem =
        bound(concat("attention batch=8 heads=4 kv_heads=2 q_len=1 kv_len=2000 kv_total=12000 ",
                     form, " dtype=bf16 lengths=kv cache=paged lse=natural"));
    const CandidateList list = enumerate(problem);
    check(problem, list, defaults(list), 5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kernwright
