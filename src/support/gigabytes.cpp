#include "support/gigabytes.h"

#include <array>
#include <charconv>

namespace kernwright {

std::string gigabytes(double bytes) {
  const double value = bytes * 1e-9;
  std::array<char, 400> text;  // the longest double without an exponent has 309 digits
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value,
                                          std::chars_format::fixed, value < 1 ? 3 : 1);
  return std::string(text.data(), end) + " GB";
}

}  // namespace kernwright
