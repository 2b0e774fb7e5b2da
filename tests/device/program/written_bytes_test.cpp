#include "device/program/written_bytes.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(WrittenBytesTest, OneByteInCommonIsAnOverlap) {
  WrittenBytes written;
  EXPECT_FALSE(written.overlap(0, 1'000));
  written.add(100, 10);
  EXPECT_FALSE(written.overlap(90, 10));
  EXPECT_TRUE(written.overlap(90, 11));
  EXPECT_TRUE(written.overlap(90, 100));
  EXPECT_TRUE(written.overlap(104, 2));
  EXPECT_TRUE(written.overlap(109, 50));
  EXPECT_FALSE(written.overlap(110, 50));
  EXPECT_FALSE(written.overlap(104, 0)) << "no byte";
  written.clear();
  EXPECT_FALSE(written.overlap(100, 10));
}

TEST(WrittenBytesTest, KnowsAllRangesInWhateverOrderTheyCome) {
  // Twelve ranges of 3 bytes at multiples of 5, some twice, then some that fill gaps.
  WrittenBytes written;
  std::vector<bool> bytes(100, false);
  const auto add = [&](DevicePointer first, std::int64_t count) {
    written.add(first, count);
    for (std::int64_t i = 0; i < count; ++i) bytes[first + static_cast<std::size_t>(i)] = true;
  };
  for (DevicePointer i = 0; i < 20; ++i) add(i * 7 % 12 * 5, 3);
  add(8, 2);    // touches both of its neighbours
  add(21, 20);  // covers some, and parts of others
  add(70, 0);   // nothing
  add(60, 1);
  for (DevicePointer first = 0; first < 80; ++first) {
    for (std::int64_t count = 1; count < 20; ++count) {
      bool any = false;
      for (std::int64_t i = 0; i < count; ++i) any |= bytes[first + static_cast<std::size_t>(i)];
      EXPECT_EQ(written.overlap(first, count), any) << first << " " << count;
    }
  }
}

}  // namespace
}  // namespace kernwright
