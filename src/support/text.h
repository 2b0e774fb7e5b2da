#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace kernwright {

/// Appends the text of a string, a character or a number, which streams write too.
template <typename Part>
void append_text(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_same_v<Part, char>) {
    text += part;
  } else if constexpr (std::is_same_v<Part, bool>) {
    text += part ? '1' : '0';
  } else if constexpr (sizeof(Part) > 1 &&
                       (std::is_integral_v<Part> || std::is_same_v<Part, float> ||
                        std::is_same_v<Part, double>)) {
    std::array<char, 32> digits;
    char* end = nullptr;
    if constexpr (std::is_integral_v<Part>) {
      end = std::to_chars(digits.data(), digits.data() + digits.size(), part).ptr;
    } else {
      constexpr int kDigits = 6;
      end = std::to_chars(digits.data(), digits.data() + digits.size(), part,
                          std::chars_format::general, kDigits)
                .ptr;
    }
    text.append(digits.data(), end);
  } else {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << part;
    text += std::move(out).str();
  }
}

/// Concatenates the text of strings, characters and numbers, for keys and messages. It does not
/// depend on the process's locale, so numbers have no separators of thousands.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (append_text(text, parts), ...);
  return text;
}

/// Returns a number of things as people read it: "1 file", "2 files". `many` is the plural if it is
/// not `one` with an "s".
template <std::integral Count>
std::string counted(Count count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return concat("1 ", one);
  return many.empty() ? concat(count, ' ', one, 's') : concat(count, ' ', many);
}

// Numbers for people, with a decimal point whatever the locale is. (`printf` and `strtod` follow
// the host program's locale, and `std::isdigit` and `std::tolower` may.)
/// Returns `value` with `decimals` digits after the point, like "%.1f".
std::string fixed(double value, int decimals);
/// Returns `value` with at most `digits` significant digits, like "%.3g".
std::string significant(double value, int digits);

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// Returns the text without the byte order mark that some editors write at the start of UTF-8.
std::string_view without_byte_order_mark(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

/// Returns the text as a part of HTML or XML, also of an attribute in double quotes.
std::string escaped_html(std::string_view text);

/// Returns true for [A-Za-z_][A-Za-z0-9_]*, the names of the expression language.
bool is_identifier(std::string_view text);

}  // namespace kernwright
