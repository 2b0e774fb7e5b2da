#include "support/text.h"

#include <gtest/gtest.h>
#include <locale>

#include "tests/comma_locale.h"

namespace kernwright {
namespace {

TEST(TextTest, ConcatTakesStringsCharactersAndNumbers) {
  EXPECT_EQ(concat("m=", 4096, ' ', std::string("k"), '=', -1.5), "m=4096 k=-1.5");
}

TEST(TextTest, OneThingIsCalledOtherwiseThanSeveral) {
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(2, "file"), "2 files");
  EXPECT_EQ(counted(1, "search", "searches"), "1 search");
  EXPECT_EQ(counted(std::size_t{3}, "search", "searches"), "3 searches");
}

struct Thousands : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
  char do_decimal_point() const override { return ','; }
};

TEST(TextTest, ConcatDoesNotFollowTheProcessesLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new Thousands));
  const std::string text = concat(4096, ' ', -1.5);
  std::locale::global(before);
  EXPECT_EQ(text, "4096 -1.5");
}

TEST(TextTest, NumbersForPeopleHaveAPointInEveryLocale) {
  const CommaLocale locale;
  if (!locale.missing().empty()) GTEST_SKIP() << locale.missing();
  EXPECT_EQ(fixed(1234.567, 1), "1234.6");
  EXPECT_EQ(fixed(0.5, 0), "0");
  EXPECT_EQ(fixed(1e300, 1).size(), 303U);
  EXPECT_EQ(significant(1234.567, 3), "1.23e+03");
  EXPECT_EQ(significant(0.25, 3), "0.25");
  EXPECT_EQ(concat(1.5, ' ', 4096), "1.5 4096");
}

TEST(TextTest, NoTextEndsTheHtmlThatItStandsIn) {
  EXPECT_EQ(escaped_html("<a href=\"x\">R&D</a> ü"),
            "&lt;a href=&quot;x&quot;&gt;R&amp;D&lt;/a&gt; ü");
}

TEST(TextTest, LettersAndDigitsAreThoseOfAscii) {
  EXPECT_TRUE(is_letter('a') && is_letter('Z') && is_digit('0') && is_digit('9'));
  EXPECT_FALSE(is_letter('_') || is_letter('\xe4') || is_digit('a'));
  EXPECT_EQ(to_lower('I'), 'i');
  EXPECT_EQ(to_lower('_'), '_');
}

TEST(TextTest, AByteOrderMarkIsNoText) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF// x"), "// x");
  EXPECT_EQ(without_byte_order_mark("// x"), "// x");
}

TEST(TextTest, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b,", ','), (std::vector<std::string_view>{"a", "", "b", ""}));
  EXPECT_EQ(split("", ','), std::vector<std::string_view>{""});
}

TEST(TextTest, TrimTakesSpaceFromBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(TextTest, IdentifiersStartWithALetter) {
  for (const char* name : {"a", "_", "BM", "smem_per_sm", "x1"}) EXPECT_TRUE(is_identifier(name));
  for (const char* name : {"", "1x", "a-b", "a b", "\xc3\xa9"}) EXPECT_FALSE(is_identifier(name));
}

}  // namespace
}  // namespace kernwright
