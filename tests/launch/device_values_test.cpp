#include "launch/device_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace kernwright {
namespace {

using Range = ValueRange<std::int64_t>;

std::string found(std::vector<std::int64_t> extent, const Range& range,
                  const std::vector<std::int64_t>& values,
                  const std::vector<std::int64_t>& counts = {},
                  const std::vector<std::int64_t>& rows = {}) {
  TensorShape shape;
  shape.name = "t";
  shape.dtype = DType::int32;
  shape.extent = std::move(extent);
  shape.values = range;
  const Result<void> checked = check_values(shape, values, counts, rows);
  return checked ? "" : checked.error().message;
}

TEST(DeviceValuesTest, AnElementOutOfRangeIsNamedWithWhatItMayBe) {
  const Range lengths{.least = 0, .most = 9};
  EXPECT_EQ(found({3}, lengths, {0, 9, 5}), "");
  EXPECT_EQ(found({3}, lengths, {0, 10, -7}), "t[1] is 10, and may be 0 to 9");
  EXPECT_EQ(found({3}, lengths, {0, 1, -7}), "t[2] is -7, and may be 0 to 9");
}

TEST(DeviceValuesTest, OffsetsBeginEndAndRise) {
  const Range offsets{.least = 0, .most = 10, .rise = 6};
  EXPECT_EQ(found({4}, offsets, {0, 6, 6, 10}), "");
  EXPECT_EQ(found({4}, offsets, {1, 6, 6, 10}), "t[0] is 1, and begins at 0");
  EXPECT_EQ(found({4}, offsets, {0, 6, 5, 10}), "t[2] is 5 after 6");
  EXPECT_EQ(found({4}, offsets, {0, 7, 8, 10}), "t[1] is 7 after 0, more than 6 on");
  EXPECT_EQ(found({4}, offsets, {0, 6, 6, 9}), "t[3] is 9, and ends at 10");
}

TEST(DeviceValuesTest, EndsDoNotFall) {
  const Range ends{.least = 0, .most = 10, .falls = false};
  EXPECT_EQ(found({4}, ends, {3, 3, 9, 9}), "") << "they begin and end anywhere";
  EXPECT_EQ(found({4}, ends, {3, 2, 9, 9}), "t[1] is 2 after 3");
  EXPECT_EQ(found({4}, ends, {3, 3, 11, 11}), "t[2] is 11, and may be 0 to 10");
}

TEST(DeviceValuesTest, OfATableOnlyWhatARowUsesCounts) {
  // Rows of three pages of 16 keys; the first uses 17 keys, the second none.
  const Range pages{.least = 0, .most = 4, .counted_by = "lengths", .per = 16};
  const std::int64_t behind = 2147483647;
  EXPECT_EQ(found({2, 3}, pages, {4, 0, behind, behind, behind, behind}, {17, 0}), "");
  EXPECT_EQ(found({2, 3}, pages, {4, 5, behind, behind, behind, behind}, {17, 0}),
            "t[0,1] is 5, and may be 0 to 4");
  EXPECT_EQ(found({2, 3}, pages, {4, 0, behind, 9, behind, behind}, {17, 1}),
            "t[1,0] is 9, and may be 0 to 4");
  EXPECT_EQ(found({2, 3}, pages, {4, 0, behind, 0, 0, 0}),
            "t[0,2] is 2147483647, and may be 0 to 4")
      << "all count where no tensor says how many";
}

TEST(DeviceValuesTest, OfATableOnlyRowsThatAreNamedCount) {
  const Range pages{.least = 0, .most = 4, .counted_by = "lengths", .per = 16, .rows = "rows"};
  const std::int64_t behind = 2147483647;
  const std::vector<std::int64_t> table{behind, behind, 3, behind, 9, 0};
  EXPECT_EQ(found({3, 2}, pages, table, {16}, {1}), "");
  EXPECT_EQ(found({3, 2}, pages, table, {16, 32}, {1, 2}), "t[2,0] is 9, and may be 0 to 4");
  EXPECT_EQ(found({3, 2}, pages, table, {17}, {1}), "t[1,1] is 2147483647, and may be 0 to 4");
  EXPECT_EQ(found({3, 2}, pages, table, {}, {1}), "t[1,1] is 2147483647, and may be 0 to 4")
      << "without lengths a row that is named counts to its end";
}

TEST(DeviceValuesTest, OfAListOnlyWhatIsBeforeTheLastOffsetCounts) {
  const Range pages{.least = 0, .most = 4, .counted_by = "offsets"};
  EXPECT_EQ(found({4}, pages, {4, 0, 7, 7}, {0, 1, 2}), "");
  EXPECT_EQ(found({4}, pages, {4, 0, 7, 7}, {0, 1, 3}), "t[2] is 7, and may be 0 to 4");
  EXPECT_EQ(found({4}, pages, {4, 0, 7, 7}, {0, 0}), "");
}

}  // namespace
}  // namespace kernwright
