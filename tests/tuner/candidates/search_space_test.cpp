#include "tuner/candidates/search_space.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

class SearchSpaceTest : public ::testing::Test {
 protected:
  static Choice warm_start(std::string name, int a, int b, int r) {
    return {std::move(name), Configuration({{"A", a}, {"B", b}, {"R", r}})};
  }
  SearchSpace make(const std::vector<Choice>& warm_starts) const {
    return make_search_space(list_, warm_starts);
  }
  std::string id(std::size_t candidate) const { return list_.candidates[candidate].id(); }

  ToyCatalog catalog_;
  DeviceProfile profile_ = find_profile("h200").value();
  CandidateList list_ = enumerate_candidates(*catalog_, catalog_.problem(64), profile_).value();
};

TEST_F(SearchSpaceTest, TakesTheListAsItIs) {
  const SearchSpace space = make({});
  EXPECT_EQ(space.predicted_us, list_.predicted_us);
  EXPECT_EQ(space.group_of, list_.group_of);
  EXPECT_EQ(space.default_index, list_.default_index);
  EXPECT_TRUE(space.warm_starts.empty());
  ASSERT_EQ(space.configurations.size(), list_.candidates.size());
  for (std::size_t i = 0; i < list_.candidates.size(); ++i) {
    EXPECT_EQ(space.configurations[i], &list_.candidates[i].configuration);
    EXPECT_EQ(space.template_of[i] == space.template_of[0],
              list_.candidates[i].kernel_template == list_.candidates[0].kernel_template);
  }
}

TEST_F(SearchSpaceTest, FindsWarmStartsInTheirOrderEachOnce) {
  const SearchSpace space =
      make({warm_start("toy/plain", 6, 4, 2), warm_start("toy/plain", 3, 1, 1),
            warm_start("toy/plain", 6, 4, 2)});
  ASSERT_EQ(space.warm_starts.size(), 2U);
  EXPECT_EQ(id(space.warm_starts[0]), "toy/plain A=6 B=4 R=2");
  EXPECT_EQ(id(space.warm_starts[1]), "toy/plain A=3 B=1 R=1");
}

TEST_F(SearchSpaceTest, AWarmStartThatIsNotValidHereBecomesANearOne) {
  const SearchSpace space = make({warm_start("toy/plain", 99, 4, 2)});
  ASSERT_EQ(space.warm_starts.size(), 1U);
  EXPECT_EQ(list_.candidates[space.warm_starts[0]].configuration.at("B"), 4);
  EXPECT_EQ(list_.candidates[space.warm_starts[0]].configuration.at("R"), 2);
}

TEST_F(SearchSpaceTest, LeavesOutWarmStartsFromNowhereAndTheDefault) {
  const Candidate& default_candidate = list_.candidates[list_.default_index];
  EXPECT_TRUE(make({warm_start("toy/none", 1, 1, 1), warm_start("toy/plain", 99, 99, 99),
                    default_candidate.choice()})
                  .warm_starts.empty());
}

}  // namespace
}  // namespace kernwright
