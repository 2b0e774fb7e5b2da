#include "support/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include <kernwright/visible.h>

namespace kernwright {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string formatted(double value, std::chars_format format, int precision) {
  // The largest double has 309 digits before the point.
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value, format, precision).ptr;
  return {text.data(), end};
}

struct Range {
  std::uint32_t first, last;
};
/// Code points above ASCII that a terminal or an editor does not show as a character: controls,
/// formats, line separators, default ignorables, surrogates, private and unassigned planes (Unicode
/// 14).
constexpr Range kInvisible[] = {
    {0x80, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
    {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
    {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},
    {0xd800, 0xf8ff},   {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
    {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0x1fffe, 0x1ffff}, {0x2fffe, 0x2ffff}, {0x3fffe, 0x10ffff}};

bool is_invisible(std::uint32_t code) {
  const auto* range = std::ranges::lower_bound(kInvisible, code, {}, &Range::last);
  return range != std::end(kInvisible) && range->first <= code;
}

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0 if the text does not begin with whole, shortest UTF-8
};

/// Returns the character that `text`, which begins beyond ASCII, begins with.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = byte(0) & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes};
}

std::string in_hex(std::string_view prefix, std::uint32_t code, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(prefix);
  while (digits > 0) text += kDigits[code >> (4 * --digits) & 0xf];
  return text;
}

enum class Spelling { text, json };

std::string spelled(std::uint32_t code, Spelling spelling) {
  if (code < 0x80 && spelling == Spelling::text) return in_hex("\\x", code, 2);
  if (code < 0x10000) return in_hex("\\u", code, 4);
  if (spelling == Spelling::text) return in_hex("\\U", code, 8);
  code -= 0x10000;  // a pair of surrogates, as JSON spells it
  return in_hex("\\u", 0xd800 + (code >> 10), 4) + in_hex("\\u", 0xdc00 + (code & 0x3ff), 4);
}

std::string shown(std::string_view text, bool keep_lines, Spelling spelling) {
  std::string all;
  all.reserve(text.size());
  while (!text.empty()) {
    const auto byte = static_cast<std::uint8_t>(text.front());
    const Character character = byte < 0x80 ? Character{byte, 1} : first_character(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    const bool is_hidden = byte < 0x80 ? byte < 0x20 || byte == 0x7f : is_invisible(character.code);
    if (character.bytes == 0) {
      all += in_hex("\\x", byte, 2);
    } else if (is_hidden && !(keep_lines && byte == '\n')) {
      all += spelled(character.code, spelling);
    } else {
      all += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return all;
}

}  // namespace

std::string visible(std::string_view text) { return shown(text, false, Spelling::text); }
std::string visible_lines(std::string_view text) { return shown(text, true, Spelling::text); }
std::string visible_json(std::string_view json) { return shown(json, true, Spelling::json); }

std::string fixed(double value, int decimals) {
  return formatted(value, std::chars_format::fixed, decimals);
}

std::string significant(double value, int digits) {
  return formatted(value, std::chars_format::general, digits);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_identifier(std::string_view text) {
  const auto is_part = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
  return !text.empty() && !is_digit(text.front()) && std::ranges::all_of(text, is_part);
}

std::string escaped_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace kernwright
