#include "bench/simulation/boosted_trees.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace kernwright {
namespace {

/// Twenty groups of fifty, whose target has a step in the first term and none in the second.
std::vector<Example> steps() {
  std::mt19937_64 random(1);
  const auto draw = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<Example> examples;
  for (int i = 0; i < 1000; ++i) {
    const double x = draw();
    examples.push_back({{x, draw()}, x > 0.5 ? 1.0 : -1.0, 1, i / 50});
  }
  return examples;
}

double sum_of(const std::vector<Correction::Tree>& trees, const std::vector<double>& terms) {
  double sum = 0;
  for (const Correction::Tree& tree : trees) sum += value_of(tree, terms);
  return sum;
}

TEST(BoostedTreesTest, LearnWhatATermSaysAndNothingFromOneThatSaysNothing) {
  const auto trees = boosted_trees(steps(), {.trees = 200, .rate = 0.1, .share_of_terms = 1});
  ASSERT_EQ(trees.size(), 200u);
  for (const double other : {0.1, 0.9}) {
    EXPECT_NEAR(sum_of(trees, {0.2, other}), -1, 0.1);
    EXPECT_NEAR(sum_of(trees, {0.8, other}), 1, 0.1);
  }
}

TEST(BoostedTreesTest, AnExampleWithoutWeightDoesNotCount) {
  auto examples = steps();
  for (Example& example : examples) {
    if (example.terms[0] > 0.5) example.weight = 0;
  }
  const auto trees = boosted_trees(examples, {.trees = 200, .rate = 0.1, .share_of_terms = 1});
  EXPECT_NEAR(sum_of(trees, {0.8, 0.5}), -1, 0.1);
}

TEST(BoostedTreesTest, NoTreeHasMoreLeavesThanAllowedAndOfLessWeight) {
  const auto trees = boosted_trees(steps(), {.trees = 20, .leaves = 4, .least_weight = 400});
  for (const Correction::Tree& tree : trees) {
    EXPECT_LE(tree.size(), 7u);
    // Six of ten groups hold about 600, of which two leaves of 400 cannot be made.
    if (tree.size() > 1) {
      EXPECT_EQ(tree.size(), 3u);
    }
  }
}

TEST(BoostedTreesTest, TheSameInputGivesTheSameTrees) {
  const auto examples = steps();
  const auto text = [&](std::uint64_t seed) {
    return Correction("", {"x", "y"}, boosted_trees(examples, {.trees = 5, .seed = seed})).text();
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

}  // namespace
}  // namespace kernwright
