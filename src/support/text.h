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

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

/// True for [A-Za-z_][A-Za-z0-9_]*, the names of the expression language.
bool is_identifier(std::string_view text);

}  // namespace kernwright
