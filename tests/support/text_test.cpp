#include "support/text.h"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <locale>
#include <random>
#include <sstream>

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

TEST(TextTest, ConcatWritesNumbersAsStreamsDo) {
  const auto streamed = [](const auto& number) {
    std::ostringstream out;
    out << number;
    return out.str();
  };
  for (const double number :
       {0.0, -0.0, 1.0, 0.1, 1.0 / 3, 123456.0, 1234567.0, 1e21, 1.5e-7, 2.5e-5, 99999.95, 1e300,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(concat(number), streamed(number));
    EXPECT_EQ(concat(-number), streamed(-number));
    EXPECT_EQ(concat(static_cast<float>(number)), streamed(static_cast<float>(number)));
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bits = random();
    const double number = std::bit_cast<double>(bits);
    EXPECT_EQ(concat(number), streamed(number));
    EXPECT_EQ(concat(bits, static_cast<std::int32_t>(bits)),
              streamed(bits) + streamed(static_cast<std::int32_t>(bits)));
  }
  EXPECT_EQ(concat(true, std::int64_t{-5}, static_cast<unsigned char>('x')), "1-5x");
}

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
