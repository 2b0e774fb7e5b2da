#include <cstdint>
#include <gtest/gtest.h>
#include <string>

#include <nlohmann/json.hpp>

#include <kernwright/visible.h>

namespace kernwright {
namespace {

TEST(VisibleTest, ControlsAreWrittenAsNumbers) {
  EXPECT_EQ(visible("\x1b[31m\a\r\n\t\b\x7f"), R"(\x1b[31m\x07\x0d\x0a\x09\x08\x7f)");
  EXPECT_EQ(visible(std::string(1, '\0')), R"(\x00)");
  EXPECT_EQ(visible("a\u009b31m\u0085b"), R"(a\u009b31m\u0085b)");
}

TEST(VisibleTest, WhatTurnsOrHidesTextIsWrittenAsNumbers) {
  EXPECT_EQ(visible("\u202e\u2066\u200f\u061c"), R"(\u202e\u2066\u200f\u061c)");
  EXPECT_EQ(visible("\u200b\u200d\u2060\ufeff\u00ad\u2028\u2029"),
            R"(\u200b\u200d\u2060\ufeff\u00ad\u2028\u2029)");
  EXPECT_EQ(visible("\U000e0041\U000f0000\ue000\ufff9\U0001d173"),
            R"(\U000e0041\U000f0000\ue000\ufff9\U0001d173)");
}

TEST(VisibleTest, TextStaysAsItIs) {
  for (const char* text : {"", "matmul m=1 \\x1b", "é ü 日本 ñ", "Ω ∑ → “q”", "😀", "עברית"}) {
    EXPECT_EQ(visible(text), text);
    EXPECT_EQ(visible_lines(text), text);
    EXPECT_EQ(visible_json(text), text);
  }
}

TEST(VisibleTest, BytesThatAreNotUtf8AreWrittenAsNumbers) {
  EXPECT_EQ(visible("a\xff\xfe z"), R"(a\xff\xfe z)");
  EXPECT_EQ(visible("\xc3"), R"(\xc3)");            // cut
  EXPECT_EQ(visible("\xe6\x97z"), R"(\xe6\x97z)");  // cut within the text
  EXPECT_EQ(visible("\xc1\x9b"), R"(\xc1\x9b)");    // ESC and others, longer than need be
  EXPECT_EQ(visible("\xe0\x82\x9b"), R"(\xe0\x82\x9b)");
  EXPECT_EQ(visible("\xed\xa0\x80"), R"(\xed\xa0\x80)");  // a surrogate
  EXPECT_EQ(visible("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)");
  EXPECT_EQ(visible("\x9b"), R"(\x9b)");  // a control of Latin-1
}

TEST(VisibleTest, LinesMayStayLines) { EXPECT_EQ(visible_lines("a\r\n\x1b\n"), "a\\x0d\n\\x1b\n"); }

TEST(VisibleTest, JsonKeepsItsMeaning) {
  const std::string text = "\x01\x7f\u0085\u202e\U000e0041é\n\"\\";
  const nlohmann::json json = {{text, text}};
  const std::string shown = visible_json(json.dump(2));
  EXPECT_EQ(shown, visible_lines(shown));
  EXPECT_NE(shown.find("\\udb40\\udc41"), std::string::npos) << shown;
  EXPECT_EQ(nlohmann::json::parse(shown), json);
}

/// No sequence of bytes leaves something that a terminal obeys, and a second call changes nothing.
TEST(VisibleTest, NothingGetsThrough) {
  std::uint32_t state = 1;
  for (int run = 0; run < 20'000; ++run) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      // Bytes of which characters of several are made come more often.
      const unsigned byte = state >> 24;
      text += static_cast<char>(state & 0x100 ? 0x80 | (byte & 0x3f) : byte);
    }
    const std::string shown = visible(text);
    EXPECT_EQ(visible(shown), shown);
    for (const char c : shown) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    EXPECT_EQ(shown.find("\xc2\x9b"), std::string::npos);
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(shown).dump())) << "UTF-8";
  }
}

}  // namespace
}  // namespace kernwright
