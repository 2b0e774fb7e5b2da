#include "tuner/candidates/shortlist.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

BoundProblem bound(std::string_view text) {
  return catalog().bind(Problem::parse(text).value()).value();
}
std::string family(std::string_view text) { return family_of(bound(text)); }

TEST(ShortlistTest, AFamilyHasAllSizesOfItsIntervals) {
  const auto product = [](int m) {
    return family(concat("matmul m=", m, " n=6144 k=4096 dtype=bf16"));
  };
  EXPECT_EQ(product(129), product(5000));
  EXPECT_EQ(product(17), product(32));
  EXPECT_NE(product(16), product(17)) << "at an edge";
  EXPECT_NE(product(129), family("matmul m=129 n=6144 k=4096 dtype=fp16"));
  EXPECT_NE(product(129), family("matmul m=129 n=6144 k=4104 dtype=bf16"));
}

TEST(ShortlistTest, SizesThatFollowOthersBelongToTheSameFamily) {
  const auto attention = [](std::string_view rest) {
    return family(concat("attention heads=8 head_dim=64 dtype=bf16 ", rest));
  };
  EXPECT_EQ(attention("batch=20 q_len=1 kv_len=600"), attention("batch=33 q_len=1 kv_len=4000"));
  EXPECT_NE(attention("batch=20 q_len=1 kv_len=600"), attention("batch=20 q_len=2 kv_len=600"));
  const std::string ragged = "batch=20 q_len=1 lengths=kv kv_len=600 ";
  EXPECT_EQ(attention(ragged), attention(ragged + "kv_total=12000")) << "as by default";
  EXPECT_EQ(attention(ragged + "kv_total=3000"), attention(ragged + "kv_total=11000"));
  EXPECT_NE(attention(ragged + "kv_total=3000"), attention(ragged)) << "a dim more";
}

Result<Shortlist> shortlist_of(std::string_view text) {
  const auto stopped = [] { return false; };
  const auto ranked = rank_family(catalog(), bound(text), h200(), stopped);
  if (!ranked) return ranked.error();
  return make_shortlist(*ranked, catalog(), bound(text), h200(), stopped,
                        [](const ListedChoice&) { return true; });
}

/// How many times the best prediction of all the choice of the shortlist's table takes, at sizes
/// that it was not made from.
std::vector<double> losses(std::string_view asked, const std::vector<std::string>& others) {
  const auto shortlist = shortlist_of(asked);
  EXPECT_TRUE(shortlist) << shortlist.error().message;
  EXPECT_GE(shortlist->choices.size(), 1U);
  EXPECT_LE(shortlist->choices.size(), 8U);
  std::vector<double> found;
  for (const std::string& text : others) {
    const BoundProblem other = bound(text);
    EXPECT_EQ(family_of(other), family(asked)) << text;
    std::vector<std::int64_t> sizes;
    for (const FreeDim& dim : free_dims(bound(asked))) {
      sizes.push_back(*other.scope().find(dim.name));
      EXPECT_GE(sizes.back(), dim.first);
      EXPECT_LE(sizes.back(), dim.last);
    }
    std::vector<Shortlisted> ranked;
    for (const std::uint8_t choice : shortlist->table->order(sizes)) {
      if (choice >= shortlist->choices.size() || !ranked.empty()) break;
      ranked = rank_shortlist({shortlist->choices[choice]}, catalog(), other, h200());
    }
    EXPECT_FALSE(ranked.empty()) << text;
    if (ranked.empty()) continue;
    const auto all = enumerate_candidates(catalog(), other, h200());
    EXPECT_TRUE(all);
    const double best = all->predicted_us[predicted_choice(all->predicted_us, all->default_index)];
    found.push_back(ranked.front().predicted_us / best);
  }
  std::ranges::sort(found);
  return found;
}

TEST(ShortlistTest, AFewKernelsAreNearTheBestAtAllSizes) {
  std::vector<std::string> products;
  for (const int m : {131, 190, 333, 517, 700, 1021, 1800, 2300, 3001, 4700, 7003}) {
    products.push_back(concat("matmul m=", m, " n=6144 k=4096 dtype=bf16"));
  }
  const std::vector<double> of_products = losses("matmul m=400 n=6144 k=4096 dtype=bf16", products);
  EXPECT_LE(of_products[of_products.size() / 2], 1.06);
  EXPECT_LE(of_products.back(), 1.5);

  std::vector<std::string> decodes;
  for (const int kv : {600, 1111, 1700, 2900, 4001}) {
    decodes.push_back(concat("attention batch=7 heads=16 kv_heads=4 q_len=1 kv_len=", kv,
                             " head_dim=128 dtype=bf16"));
  }
  const std::vector<double> of_decodes = losses(
      "attention batch=9 heads=16 kv_heads=4 q_len=1 kv_len=1000 head_dim=128 dtype=bf16", decodes);
  EXPECT_LE(of_decodes[of_decodes.size() / 2], 1.06);
  EXPECT_LE(of_decodes.back(), 1.5);
}

TEST(ShortlistTest, SizesThatFollowOthersAreChosenByToo) {
  const std::string rest = " heads=16 kv_heads=4 q_len=1 head_dim=128 dtype=bf16 lengths=kv ";
  std::vector<std::string> paged;
  for (const int batch : {18, 27, 40, 61}) {
    for (const int kv : {700, 1500, 3900}) {
      paged.push_back(concat("attention batch=", batch, rest, "cache=paged pages=50000 kv_len=", kv,
                             " kv_total=", batch * kv / 2));
    }
  }
  const std::vector<double> found = losses(
      concat("attention batch=32", rest, "cache=paged pages=50000 kv_len=2000 kv_total=30000"),
      paged);
  EXPECT_EQ(found.size(), paged.size());
  EXPECT_LE(found[found.size() / 2], 1.1);
  EXPECT_LE(found.back(), 1.6);
}

TEST(ShortlistTest, OthersTakeThePlaceOfChoicesThatMayNotBeListed) {
  const auto go_on = [] { return false; };
  const BoundProblem problem = bound("matmul m=400 n=6144 k=4096 dtype=bf16");
  const RankedChoices ranked = must(rank_family(catalog(), problem, h200(), go_on));
  std::set<std::string> refused;
  for (int i = 0; i < 3; ++i) {
    const Shortlist list = must(make_shortlist(
        ranked, catalog(), problem, h200(), go_on,
        [&](const ListedChoice& one) { return !refused.contains(one.choice.id()); }));
    ASSERT_FALSE(list.choices.empty());
    for (const ListedChoice& one : list.choices)
      EXPECT_TRUE(refused.insert(one.choice.id()).second);
  }
  const Shortlist none = must(make_shortlist(ranked, catalog(), problem, h200(), go_on,
                                             [](const ListedChoice&) { return false; }));
  EXPECT_TRUE(none.choices.empty());
  EXPECT_FALSE(none.table);
}

TEST(ShortlistTest, AProblemThatNoTemplateRunsHasNone) {
  const auto none =
      shortlist_of("attention batch=1 heads=2 q_len=70 kv_len=70 head_dim=320 dtype=bf16");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
}

TEST(ShortlistTest, EndsSoonWhenItIsStopped) {
  std::atomic<int> asked = 0;
  const BoundProblem problem = bound("rmsnorm rows=7 columns=512 dtype=bf16");
  ASSERT_TRUE(rank_family(catalog(), problem, h200(), [&] { return ++asked < 0; }));
  const int asked_of_all = asked.exchange(0);
  const auto stopped = rank_family(catalog(), problem, h200(), [&] { return ++asked >= 3; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::unavailable);
  EXPECT_LT(asked, asked_of_all / 4);  // once a size that is left
}

}  // namespace
}  // namespace kernwright
