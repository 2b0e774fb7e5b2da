#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kernwright {

/// Appends values to bytes: integers as little-endian, texts after their length.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& bytes) : bytes_(bytes) {}

  template <typename Integer>
  void integer(Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes_ += static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i)));
    }
  }
  void number(double value) { integer(std::bit_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    integer(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
  }

 private:
  std::string& bytes_;
};

/// Reads what a `ByteWriter` wrote. A read past the end returns 0 or an empty text, and `ok` stays
/// false from then on. So a caller may read all it needs and ask once.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer integer() {
    const std::string_view from = take(sizeof(Integer));
    Integer value = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      value |=
          static_cast<Integer>(static_cast<Integer>(static_cast<std::uint8_t>(from[i])) << (8 * i));
    }
    return value;
  }
  double number() { return std::bit_cast<double>(integer<std::uint64_t>()); }
  std::string_view text() { return take(integer<std::uint32_t>()); }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  /// Returns the number of bytes that are not read yet.
  std::size_t left() const { return bytes_.size(); }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace kernwright
