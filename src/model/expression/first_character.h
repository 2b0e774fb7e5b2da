#pragma once

#include <cstddef>
#include <string_view>

namespace kernwright {

/// Returns the bytes of the first character of UTF-8, or the first byte if the bytes are not UTF-8.
/// Empty for an empty text.
inline std::string_view first_character(std::string_view text) {
  constexpr std::size_t kMostBytes = 4;
  const auto byte_at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty() || byte_at(0) < 0xC0) return text.substr(0, 1);
  std::size_t size = 1;
  while (size < text.size() && size < kMostBytes && byte_at(size) >= 0x80 && byte_at(size) < 0xC0) {
    ++size;
  }
  return text.substr(0, size);
}

}  // namespace kernwright
