#include "support/text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace kernwright {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string formatted(double value, std::chars_format format, int precision) {
  // The largest double has 309 digits before the point.
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value, format, precision).ptr;
  return {text.data(), end};
}

}  // namespace

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
