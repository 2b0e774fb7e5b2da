#include "service/sweep/sizes.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

Sizes sizes(std::string_view text) { return must(parse_sizes(text)); }

TEST(SizesTest, ListsAndRangesInTheirOrder) {
  EXPECT_EQ(sizes("7"), Sizes{7});
  EXPECT_EQ(sizes("1, 2,4:64:x2"), (Sizes{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(sizes("4:63:x2"), (Sizes{4, 8, 16, 32}));
  EXPECT_EQ(sizes("16:64:16"), (Sizes{16, 32, 48, 64}));
  EXPECT_EQ(sizes("8:10"), (Sizes{8, 9, 10}));
  EXPECT_EQ(sizes("5:5:x3"), Sizes{5});
}

TEST(SizesTest, TheLastSizeThatFitsEndsARange) {
  EXPECT_EQ(sizes("4611686018427387904:9223372036854775807:x2"), Sizes{4611686018427387904});
}

TEST(SizesTest, WhatIsNoneIsNamed) {
  for (const char* text : {"", "0", "-1", "1,,2", "4:2", "4:8:x1", "4:8:0", "a", "4:8:x2:3",
                           "4:", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(parse_sizes(text), Fails(HasSubstr("is neither a size"))) << text;
  }
  EXPECT_FALSE(parse_sizes("1:100000"));
}

}  // namespace
}  // namespace kernwright
