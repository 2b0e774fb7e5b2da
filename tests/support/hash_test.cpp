#include "support/hash.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(DigestTest, MatchesThePublishedVectors) {
  // From the BLAKE3 project's test vectors: input bytes 0, 1, 2, ...
  EXPECT_EQ(digest_of("").hex(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  EXPECT_EQ(digest_of(std::string_view("\0", 1)).hex(),
            "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213");
}

TEST(HasherTest, FieldsNeverRunTogether) {
  Hasher one;
  one.add("a", "bc").add("d", "");
  Hasher other;
  other.add("ab", "c").add("d", "");
  Hasher third;
  third.add("a", "b").add("c", "d");
  EXPECT_NE(one.finish(), other.finish());
  EXPECT_NE(one.finish(), third.finish());
}

TEST(HasherTest, EqualFieldsGiveEqualDigests) {
  Hasher one;
  one.add("arch", "sm_90a").add("size", std::int64_t{-7});
  Hasher other;
  other.add("arch", "sm_90a").add("size", std::int64_t{-7});
  EXPECT_EQ(one.finish(), other.finish());
}

TEST(HasherTest, FinishLeavesTheStateUsable) {
  Hasher hasher;
  hasher.add("a", "1");
  const Digest first = hasher.finish();
  EXPECT_EQ(hasher.finish(), first);
  hasher.add("b", "2");
  EXPECT_NE(hasher.finish(), first);
}

}  // namespace
}  // namespace kernwright
