#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kernwright {

/// A BLAKE3-256 digest (LLVM's implementation).
struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  std::string hex() const;
  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

/// Accumulates named fields into a digest. Every field is length-prefixed, so that adjacent fields
/// never run together.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::string_view name, std::string_view value);
  Hasher& add(std::string_view name, std::int64_t value);
  Digest finish() const;

 private:
  struct State;
  State* state_;
};

Digest digest_of(std::string_view bytes);

/// Returns whether the text is a digest as `Digest::hex` writes it.
bool is_hex_digest(std::string_view text);

}  // namespace kernwright
