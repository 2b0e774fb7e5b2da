#include "cache/fields/json_fields.h"

#include <gtest/gtest.h>
#include <string>

#include "support/text.h"

namespace kernwright {
namespace {

std::string error_of(const std::string& json) {
  const Result<FieldReader::Json> parsed = parse_object(json, "text");
  return parsed ? "parsed" : parsed.error().message;
}

/// An object of `count` members.
std::string members(int count) {
  std::string json = "{";
  for (int i = 0; i < count; ++i) json += concat(i == 0 ? "" : ",", '"', i, "\":0");
  return json + "}";
}

TEST(JsonFieldsTest, DepthIsLimitedBeforeAnythingIsParsed) {
  const auto nested = [](std::size_t depth) {
    return concat("{\"a\":", std::string(depth - 1, '['), std::string(depth - 1, ']'), "}");
  };
  EXPECT_EQ(error_of(nested(64)), "parsed");
  EXPECT_EQ(error_of(nested(65)), "text: nested deeper than 64");
  EXPECT_EQ(error_of(std::string(64 << 20, '[')), "text: nested deeper than 64");
}

TEST(JsonFieldsTest, TheMembersOfAnObjectAreLimited) {
  EXPECT_EQ(error_of(members(4096)), "parsed");
  EXPECT_EQ(error_of(members(4097)), "text: an object of more than 4096 members");
  EXPECT_EQ(error_of(concat("{\"a\":[1,", members(4097), "]}")),
            "text: an object of more than 4096 members");
  std::string numbers = "{\"a\":[0";
  for (int i = 0; i < 10'000; ++i) numbers += ",0";
  EXPECT_EQ(error_of(numbers + "]}"), "parsed") << "an array has as many as it likes";
}

TEST(JsonFieldsTest, BracketsInTextDoNotCount) {
  EXPECT_EQ(error_of(concat("{\"a\":\"\\\"", std::string(100, '['), "\\\\\",\"b\":[]}")), "parsed");
  EXPECT_EQ(error_of("{\"a\":\"[[["), "text: not a JSON object");
  EXPECT_EQ(error_of("]]{}"), "text: not a JSON object");
  EXPECT_EQ(error_of("[]"), "text: not a JSON object");
}

}  // namespace
}  // namespace kernwright
