#include "cache/fields/field_writer.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cache/fields/json_fields.h"
#include "model/result/evidence.h"

namespace kernwright {
namespace {

TEST(FieldWriterTest, WritesFieldsInOrderOnOneLine) {
  FieldWriter json;
  json.field("text", "a");
  json.field("truth", true);
  json.field("nothing", nullptr);
  json.field("none", std::vector<int>());
  json.field("some", std::vector<std::string>{"x", "y"});
  json.object("inner", [&] { json.field("number", -1); });
  json.object("empty", [] {});
  json.field("items", std::vector<PathTime>{{KernelPath::graph, 1, 2.5}, {}});
  json.field("nothing of it", std::optional<int>());
  json.field_unless("usual", 1, 1);
  json.field_unless("unusual", 2, 1);
  json.field("configuration", Configuration({{"BM", 64}, {"SWIZZLE", -2}}));
  EXPECT_EQ(json.text(), R"({"text":"a","truth":true,"nothing":null,"none":[],"some":["x","y"],)"
                         R"("inner":{"number":-1},"empty":{},"items":[{"path":"graph","host_us":1,)"
                         R"("period_us":2.5},{"path":"stream","host_us":0,"period_us":0}],)"
                         R"("nothing of it":null,"unusual":2,)"
                         R"("configuration":{"BM":64,"SWIZZLE":-2}})");
}

TEST(FieldWriterTest, NumbersComeBackBitByBit) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      1.0,
                                      -3.0,
                                      0.1,
                                      1e22,
                                      123456789012345678.0,
                                      1e-7,
                                      5e-324,
                                      1.7976931348623157e308,
                                      255.1 + 1 / 7.0};
  FieldWriter json;
  json.field("values", values);
  json.field("low", std::numeric_limits<std::int64_t>::min());
  json.field("high", std::numeric_limits<std::uint64_t>::max());
  std::vector<double> back;
  std::int64_t low = 0;
  std::uint64_t high = 0;
  ASSERT_TRUE(parse_fields(json.text(), "test", [&](FieldReader& fields) {
    fields.field("values", back);
    fields.field("low", low);
    fields.field("high", high);
  }));
  ASSERT_EQ(back.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i], values[i]);
    EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i])) << values[i];
  }
  EXPECT_EQ(low, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(high, std::numeric_limits<std::uint64_t>::max());
}

TEST(FieldWriterTest, WhatIsNotFiniteIsNull) {
  FieldWriter json;
  json.field("values", std::vector<double>{std::nan(""), std::numeric_limits<double>::infinity()});
  EXPECT_EQ(json.text(), R"({"values":[null,null]})");
}

TEST(FieldWriterTest, TextOfWhateverBytesIsText) {
  for (const char* text :
       {"", "plain", "a \"b\" \\ c", "tab\t and\nline", "\x01\x7f", "\xc3\xa9"}) {
    FieldWriter json;
    json.field("text", text);
    std::string back = "another";
    ASSERT_TRUE(parse_fields(json.text(), "test",
                             [&](FieldReader& fields) { fields.field("text", back); }));
    EXPECT_EQ(back, text);
    EXPECT_EQ(json.text().find('\n'), std::string::npos);
  }
  FieldWriter json;
  json.field("text", "\xff");
  EXPECT_EQ(json.text(), "{\"text\":\"\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace kernwright
