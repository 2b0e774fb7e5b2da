#include "support/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/text.h"
#include "tests/comma_locale.h"
#include "tests/results.h"

namespace kernwright {
namespace {

std::string error_of(std::string_view text) {
  const Result<JsonNode> parsed = parse_json(text, "file.json");
  return parsed ? "parsed" : parsed.error().message;
}

TEST(JsonTest, NumbersAreTheSameInEveryLocale) {
  const CommaLocale locale;
  if (!locale.missing().empty()) GTEST_SKIP() << locale.missing();
  double number = 0;
  ASSERT_TRUE(parse_json("1.5", "f"));
  EXPECT_TRUE(parse_json("1.5", "f")->number(number));
  EXPECT_EQ(number, 1.5);
  EXPECT_TRUE(parse_json("-12.25e-2", "f")->number(number));
  EXPECT_EQ(number, -0.1225);
  EXPECT_EQ(parse_value("[1.5, 2e3, 7]").dump(), "[1.5,2000.0,7]");
  EXPECT_TRUE(parse_value("[1,5").is_discarded());
  EXPECT_EQ(error_of("12345678901234567890"),
            "file.json:1: integer 12345678901234567890 does not fit 64 bits with a sign");
}

TEST(JsonTest, AByteOrderMarkIsSkipped) {
  const JsonNode root = must(parse_json("\xEF\xBB\xBF{\"a\":\n1}", "file.json"));
  EXPECT_EQ(root.find("a")->line, 2);
}

TEST(JsonTest, KeepsTheLineOfEveryValue) {
  const JsonNode root =
      must(parse_json("{\n"
                      "  \"a\": 1\n"
                      "  ,\n"
                      "  \"b\": [\n"
                      "    2.5\n"
                      "    , true,\n"
                      "\n"
                      "    {\"c\":\n"
                      "      \"text\"}\n"
                      "  ]\n"
                      "}\n",
                      "file.json"));
  EXPECT_EQ(root.line, 1);
  EXPECT_EQ(root.find("a")->line, 2);
  const JsonNode* b = root.find("b");
  EXPECT_EQ(b->line, 4);
  EXPECT_EQ((*b->array())[0].line, 5);
  EXPECT_EQ((*b->array())[1].line, 6);
  EXPECT_EQ((*b->array())[2].line, 8);
  EXPECT_EQ((*b->array())[2].find("c")->line, 9);
}

TEST(JsonTest, GivesValuesOfEveryKind) {
  const JsonNode root = must(parse_json(
      R"({"n": null, "t": true, "i": -9223372036854775808, "d": 1e-6, "s": "é\n", "a": [], "o": {}})",
      "file.json"));
  EXPECT_EQ(root.find("n")->kind(), "null");
  EXPECT_TRUE(*root.find("t")->boolean());
  EXPECT_EQ(*root.find("i")->integer(), INT64_MIN);
  EXPECT_EQ(*root.find("s")->string(), "é\n");
  EXPECT_EQ(root.find("a")->array()->size(), 0U);
  EXPECT_EQ(root.find("o")->object()->size(), 0U);
  double number = 0;
  EXPECT_TRUE(root.find("d")->number(number));
  EXPECT_DOUBLE_EQ(number, 1e-6);
  EXPECT_FALSE(root.find("s")->number(number));
  EXPECT_EQ(root.find("missing"), nullptr);
}

TEST(JsonTest, MembersKeepTheOrderOfTheFile) {
  const JsonNode root = must(parse_json(R"({"z": 1, "a": 2, "m": 3})", "file.json"));
  std::string order;
  for (const auto& [name, value] : *root.object()) order += name;
  EXPECT_EQ(order, "zam");
}

TEST(JsonTest, DuplicateKeyIsRefusedWithBothLines) {
  EXPECT_EQ(error_of("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}"),
            "file.json:3: key \"a\" is given twice, first on line 1");
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": 1}])"), "parsed");
}

TEST(JsonTest, ManyKeysTakeNoMoreThanTheirNumber) {
  std::string text = "{";
  // A search among all keys for each would take longer than ctest allows a test.
  for (int i = 0; i < 500'000; ++i) text += concat(i == 0 ? "" : ",", '"', i, "\":1");
  EXPECT_EQ(error_of(text + "}"), "parsed");
  EXPECT_EQ(error_of(text + ",\"77\":1}"),
            "file.json:1: key \"77\" is given twice, first on line 1");
}

TEST(JsonTest, IntegersBeyond64BitsAreRefused) {
  EXPECT_EQ(error_of("9223372036854775807"), "parsed");
  EXPECT_EQ(error_of("[\n9223372036854775808]"),
            "file.json:2: integer 9223372036854775808 does not fit 64 bits with a sign");
  EXPECT_EQ(error_of("123456789012345678901234567890"),
            "file.json:1: integer 123456789012345678901234567890 does not fit 64 bits with a sign");
}

TEST(JsonTest, DepthIsLimited) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "parsed");
  EXPECT_EQ(error_of(std::string(65, '[') + std::string(65, ']')),
            "file.json:1: nested deeper than 64");
  EXPECT_EQ(error_of(std::string(1000000, '[')), "file.json:1: nested deeper than 64");
}

TEST(JsonTest, LengthIsLimited) {
  const std::string longest = concat('"', std::string(kMostJsonBytes - 2, 'x'), '"');
  EXPECT_EQ(error_of(longest), "parsed");
  EXPECT_EQ(error_of(longest + " "), concat("file.json: ", kMostJsonBytes + 1,
                                            " bytes of JSON, the most is ", kMostJsonBytes));
  EXPECT_TRUE(parse_value(longest).is_string());
  EXPECT_TRUE(parse_value(longest + " ").is_discarded());
}

TEST(JsonTest, ValuesOfProgramsHaveTheSameLimits) {
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"[", "]"}, {"{\"a\":", "}"}}) {
    const auto nested = [&](int depth) {
      std::string text;
      for (int i = 0; i < depth; ++i) text += open;
      text += "0";
      for (int i = 0; i < depth; ++i) text += close;
      return text;
    };
    EXPECT_FALSE(parse_value(nested(64)).is_discarded());
    std::string beyond;
    EXPECT_TRUE(parse_value(nested(65), &beyond).is_discarded());
    EXPECT_EQ(beyond, "nested deeper than 64");
    EXPECT_TRUE(parse_value(nested(200'000)).is_discarded());
  }
  EXPECT_TRUE(parse_value(std::string(200'000, '[')).is_discarded());
  std::string beyond = "before";
  EXPECT_FALSE(parse_value("[1,{\"a\":[]}]", &beyond).is_discarded());
  EXPECT_EQ(beyond, "");
}

// The rest of their text is nlohmann/json's, which differs between its releases.
TEST(JsonTest, SyntaxErrorsNameTheLine) {
  EXPECT_EQ(error_of("{\n\"a\": 1,\n}").substr(0, 13), "file.json:3: ");
  EXPECT_EQ(error_of("").substr(0, 13), "file.json:1: ");
  EXPECT_EQ(error_of("1 2").substr(0, 13), "file.json:1: ");
  EXPECT_EQ(error_of("\"\xff\"").substr(0, 13), "file.json:1: ");
  EXPECT_EQ(error_of("[1e999]").substr(0, 13), "file.json:1: ");
}

TEST(JsonTest, OnlyAMemberThatIsATextGivesOne) {
  const nlohmann::ordered_json object = parse_value(R"({"a": "text", "b": 3})");
  EXPECT_EQ(text_member(object, "a"), "text");
  EXPECT_EQ(text_member(object, "b"), "");
  EXPECT_EQ(text_member(object, "c"), "");
  EXPECT_EQ(text_member(parse_value("[1]"), "a"), "");
}

}  // namespace
}  // namespace kernwright
