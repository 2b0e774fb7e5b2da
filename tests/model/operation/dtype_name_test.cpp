#include "model/operation/dtype_name.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(DTypeNameTest, TakesWhatADTypeIsCalledElsewhere) {
  for (const char* name : {"bf16", "BF16", "bfloat16"}) EXPECT_EQ(dtype_meant(name), DType::bf16);
  for (const char* name : {"fp16", "float16", "half", "Half"}) {
    EXPECT_EQ(dtype_meant(name), DType::fp16) << name;
  }
  for (const char* name : {"fp32", "float32", "float"}) EXPECT_EQ(dtype_meant(name), DType::fp32);
  EXPECT_EQ(dtype_meant("float8_e4m3fn"), DType::fp8_e4m3);
  EXPECT_EQ(dtype_meant("fp8"), std::nullopt) << "there are several";
  EXPECT_EQ(dtype_meant("int9"), std::nullopt);
}

TEST(DTypeNameTest, FilesHaveTheOwnSpellingAlone) {
  EXPECT_EQ(parse_dtype("bfloat16"), std::nullopt);
  EXPECT_EQ(parse_dtype("BF16"), std::nullopt);
}

}  // namespace
}  // namespace kernwright
