#include "support/gigabytes.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(GigabytesTest, SmallSizesKeepTheirDigits) {
  EXPECT_EQ(gigabytes(143'771e6), "143.8 GB");
  EXPECT_EQ(gigabytes(6e12), "6000.0 GB");
  EXPECT_EQ(gigabytes(4e6), "0.004 GB");
  EXPECT_EQ(gigabytes(0), "0.000 GB");
}

}  // namespace
}  // namespace kernwright
