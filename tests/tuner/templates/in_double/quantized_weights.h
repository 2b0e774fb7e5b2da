#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/tuner/templates/in_double/in_double.h"
#include "tuner/data/element.h"
#include <kernwright/dtype.h>

namespace kernwright {

/// The first bits of a packed code of mxfp4, among the 16 that it shares with three others.
struct Mxfp4Place {
  int size, sign;
};
inline constexpr Mxfp4Place kMxfp4Places[] = {{6, 15}, {3, 12}, {0, 14}, {9, 13}};

/// The weights that a quantized product or dequantize_weights reads, of experts those of one.
class QuantizedWeights {
 public:
  QuantizedWeights(const Arrays& in, const Dims& d, const Problem& problem, std::size_t expert = 0)
      : in_(in),
        n_(d.at("n")),
        k_(d.at("k")),
        group_(d.at("group")),
        before_(d.at("group") - d.at("first")),
        groups_((k_ + before_ + group_ - 1) / group_),
        code_(flag(problem, "weights")),
        is_packed_(flag(problem, "layout") != "rows"),
        is_gated_(!flag(problem, "gate").empty()),
        is_interleaved_(flag(problem, "gate") == "interleaved") {
    if (code_.empty()) code_ = "int4";
    const std::size_t blocks = is_gated_ ? (n_ + 31) / 32 : (n_ + 63) / 64;
    first_row_ = expert * blocks * 64;
  }

  std::size_t rows() const { return is_gated_ ? 2 * n_ : n_; }

  /// Returns the weight of row `r`, of gates and then of ups, and column `c`.
  double at(std::size_t r, std::size_t c) const {
    std::size_t row = r;
    if (is_gated_ && is_packed_) row = r % n_ / 8 * 16 + r / n_ * 8 + r % n_ % 8;
    if (is_interleaved_ && !is_packed_) row = r % n_ * 2 + r / n_;
    row += first_row_;
    const std::size_t in_row = (c + before_) / group_;
    std::size_t factor = row * groups_ + in_row;
    if (is_packed_) {
      factor =
          row / 64 * groups_ * 64 + in_row * 64 + row % 64 / 16 * 16 + row % 8 * 2 + row % 16 / 8;
    }
    const int code = code_at(row, c);
    const double scale = in_.at("b_scale")[factor];
    if (code_ == "mxfp4") {
      constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      return std::ldexp(code < 8 ? kValues[code] : -kValues[code - 8],
                        static_cast<int>(scale) - 127);
    }
    if (code_ == "fp8_e4m3") {
      const auto byte = static_cast<char>(code);
      return load_element(&byte, DType::fp8_e4m3, 0) * scale;
    }
    const double none = code_ == "int4" ? 8 : 128;
    return (code - (in_.contains("b_zero") ? in_.at("b_zero")[factor] : none)) * scale;
  }

 private:
  int code_at(std::size_t row, std::size_t c) const {
    const bool is_half = code_ == "int4" || code_ == "mxfp4";
    const auto& b = in_.at("b");
    const auto half_of = [](double byte, std::size_t nibble) {
      return static_cast<int>(byte) / (nibble == 0 ? 1 : 16) % 16;
    };
    if (!is_packed_) {
      const std::size_t i = row * k_ + c;
      return is_half ? half_of(b[i / 2], i % 2) : static_cast<int>(b[i]);
    }
    const std::size_t block = row / 64 * ((k_ + 63) / 64) + c / 64;
    const std::size_t warp = row % 64 / 16, lane = row % 8 * 4 + c % 8 / 2, step = c % 64 / 16;
    const std::size_t pair = row % 16 / 8 + c % 16 / 8 * 2;
    if (!is_half) {
      return static_cast<int>(b[block * 4096 + warp * 1024 + step / 2 * 512 + lane * 16 +
                                step % 2 * 8 + pair * 2 + c % 2]);
    }
    if (code_ == "mxfp4") {
      const std::size_t at = block * 2048 + warp * 512 + lane * 16 + step * 4 + c % 2 * 2;
      const int half = static_cast<int>(b[at] + 256 * b[at + 1]);
      return (half >> kMxfp4Places[pair].size & 7) + (half >> kMxfp4Places[pair].sign & 1) * 8;
    }
    const std::size_t nibble = pair + c % 2 * 4;
    return half_of(b[block * 2048 + warp * 512 + lane * 16 + step * 4 + nibble / 2], nibble % 2);
  }

  const Arrays& in_;
  std::size_t n_, k_, group_, before_, groups_, first_row_;
  std::string code_;
  bool is_packed_, is_gated_, is_interleaved_;
};

}  // namespace kernwright
