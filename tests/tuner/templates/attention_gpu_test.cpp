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
    Problem problem;
    CandidateList list;
    std::vector<std::size_t> candidates;
    std::vector<Build> builds;
  };

  /// Candidates of every template that applies: others at each problem, though many lists are
  /// alike.
  Chosen choose(const std::string& text, std::size_t number) {
    Chosen chosen{normalized(text), {}, {}, {}};
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
};

TEST_P(AttentionPairwiseGpuTest, ACandidateOfEachTemplateIsRight) {
  const std::vector<std::string> texts = attention_problems();
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
    if (HasFatalFailure()) return;
    ++checked;
  }
  EXPECT_GT(checked, 40U);
}

INSTANTIATE_TEST_SUITE_P(Parts, AttentionPairwiseGpuTest, ::testing::Range(0, 8));

}  // namespace
}  // namespace kernwright
