#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

/// Concatenates the arguments' text: strings, characters and numbers, these without separators of
/// thousands whatever the process's locale is. Keys and error messages are put together with it.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return std::move(out).str();
}

// Numbers for people, with a point whatever the process's locale is: `printf` and `strtod` follow
// the host program's, and `std::isdigit` and `std::tolower` may.
/// With `decimals` digits behind the point, as "%.1f" gives.
std::string fixed(double value, int decimals);
/// With at most `digits` significant digits, as "%.3g" gives.
std::string significant(double value, int digits);

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

/// Text of a file without the byte order mark that some editors begin UTF-8 with.
std::string_view without_byte_order_mark(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

/// True for [A-Za-z_][A-Za-z0-9_]*, the names of the expression language.
bool is_identifier(std::string_view text);

}  // namespace kernwright
