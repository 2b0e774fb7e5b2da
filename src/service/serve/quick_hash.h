#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kernwright {

/// Takes values into a hash that is good enough for a table: names are short, so that std::hash
/// would spend most of its time on being called, a third of what finding a kernel takes.
class QuickHash {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) {
    add(text.size());
    for (; text.size() > sizeof(std::uint64_t); text.remove_prefix(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), sizeof word);
      add(word);
    }
    std::uint64_t rest = 0;
    for (const char c : text) rest = rest << 8 | static_cast<unsigned char>(c);
    add(rest);
  }
  std::size_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace kernwright
