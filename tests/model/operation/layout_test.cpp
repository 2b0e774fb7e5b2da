#include "model/operation/layout.h"

#include <gtest/gtest.h>
#include <vector>

namespace kernwright {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(LayoutTest, AContiguousTensorIsOneRow) {
  for (const Sizes& pitches : {Sizes{}, Sizes{15, 5}}) {
    const Layout layout = Layout::of(Sizes{2, 3, 5}, pitches).value();
    EXPECT_TRUE(layout.contiguous());
    EXPECT_EQ(layout.elements, 30);
    EXPECT_EQ(layout.columns, 5);
    EXPECT_EQ(layout.span(), 30);
    EXPECT_EQ(layout.place(17), 17);
    EXPECT_EQ(layout.element_at(17), 17);
    EXPECT_EQ(layout.element_at(30), std::nullopt);
  }
}

TEST(LayoutTest, DimsWithoutAGapBetweenThemAreOneLevel) {
  // Tokens of three heads in a wider row; the sequences follow each other.
  const Layout tokens = Layout::of(Sizes{2, 4, 3, 5}, Sizes{80, 20, 5}).value();
  ASSERT_EQ(tokens.level_count, 1U);
  EXPECT_EQ(tokens.levels[0], (Layout::Level{8, 20}));
  EXPECT_EQ(tokens.row, 15);
  EXPECT_EQ(tokens.columns, 5);
  EXPECT_EQ(tokens.span(), 155);
  // A dim of one entry has no gap, whatever its pitch.
  EXPECT_TRUE(Layout::of(Sizes{1, 5}, Sizes{9})->contiguous());
}

TEST(LayoutTest, EveryElementHasAPlaceAndTheRestAreGaps) {
  const Layout layout = Layout::of(Sizes{2, 3, 2, 4}, Sizes{60, 17, 5}).value();
  EXPECT_EQ(layout.level_count, 3U);
  EXPECT_EQ(layout.span(), 60 + 2 * 17 + 5 + 4);
  std::int64_t next = 0;
  for (std::int64_t place = 0; place < layout.span(); ++place) {
    const auto element = layout.element_at(place);
    if (!element) continue;
    EXPECT_EQ(*element, next);
    EXPECT_EQ(layout.place(*element), place);
    ++next;
  }
  EXPECT_EQ(next, 48);
  EXPECT_EQ(layout.element_at(layout.span()), std::nullopt);
}

TEST(LayoutTest, GapsAtTooManyLevelsAreRefused) {
  EXPECT_TRUE(Layout::of(Sizes{2, 2, 2, 2}, Sizes{99, 20, 5}));
  EXPECT_FALSE(Layout::of(Sizes{2, 2, 2, 2, 2}, Sizes{999, 99, 20, 5}));
}

}  // namespace
}  // namespace kernwright
