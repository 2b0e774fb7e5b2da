#include "tuner/data/element.h"

#include <array>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(ElementTest, ArraysOfEveryDTypeAreReadAndWritten) {
  for (const DType dtype : kDTypes) {
    std::array<char, 3 * 8> bytes{};
    for (int i = 0; i < 3; ++i) store_element(bytes.data(), dtype, i, i == 1 ? 0 : 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(load_element(bytes.data(), dtype, i), i == 1 ? 0 : 1) << to_string(dtype);
    }
    for (auto i = static_cast<std::size_t>(bytes_of(3, dtype)); i < bytes.size(); ++i) {
      EXPECT_EQ(bytes.at(i), 0) << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace kernwright
