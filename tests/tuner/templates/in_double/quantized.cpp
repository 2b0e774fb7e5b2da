#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/tuner/templates/in_double/in_double.h"
#include "tests/tuner/templates/in_double/quantized_weights.h"

namespace kernwright {
namespace {

Outputs quantize_rows_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  Outputs out;
  for (const double x : in.at("x")) out["q"].add(x, std::fabs(x));
  out["scale"] = divide_by_own_scales(
      out["q"], d.at("rows"), flag(problem, "scaling") == "block" ? 128 : d.at("columns"),
      flag(problem, "out") == "int8" ? 127 : 448, 0x1p-10);  // the checked scale_least
  return out;
}

Outputs dequantize_weights_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const QuantizedWeights weights(in, d, problem);
  Outputs out;
  for (std::size_t r = 0; r < weights.rows(); ++r) {
    for (std::size_t c = 0; c < d.at("k"); ++c) {
      const double w = weights.at(r, c);
      out["w"].add(w, std::fabs(w));
    }
  }
  return out;
}

/// The weights of a checkpoint, of experts those of one, as numbers of rows and columns.
class CheckpointWeights {
 public:
  CheckpointWeights(const Arrays& in, const Dims& d, const Problem& problem, std::size_t expert)
      : in_(in),
        k_(d.at("k")),
        rows_(d.at("n") * (flag(problem, "gate").empty() ? 1 : 2)),
        groups_((k_ + 2 * d.at("group") - d.at("first") - 1) / d.at("group")),
        from_(flag(problem, "source")),
        is_half_(flag(problem, "weights").empty() || flag(problem, "weights") == "mxfp4"),
        first_code_(expert * rows_ * k_),
        first_factor_(expert * rows_ * groups_) {}

  int code(std::size_t row, std::size_t c) const {
    const auto& b = in_.at("b");
    if (from_ == "awq") return nibble(b, first_code_ + c * rows_, row);
    if (from_ == "gptq") {  // words of 32 bits, each with columns of a row
      return is_half_ ? half(b, first_code_ + (c / 8 * rows_ + row) * 8 + c % 8)
                      : static_cast<int>(b[first_code_ + (c / 4 * rows_ + row) * 4 + c % 4]);
    }
    const std::size_t place = first_code_ + row * k_ + c;
    return is_half_ ? half(b, place) : static_cast<int>(b[place]);
  }
  double scale(std::size_t row, std::size_t g) const {
    return in_.at("b_scale")[first_factor_ + (from_.empty() ? row * groups_ + g : g * rows_ + row)];
  }
  int zero(std::size_t row, std::size_t g) const {
    const auto& zeros = in_.at("b_zero");
    if (from_.empty()) return static_cast<int>(zeros[first_factor_ + row * groups_ + g]);
    const std::size_t line = first_factor_ + g * rows_;
    return is_half_ ? nibble(zeros, line, row) : static_cast<int>(zeros[line + row]);
  }
  std::size_t groups() const { return groups_; }

 private:
  static int half(const std::vector<double>& bytes, std::size_t i) {
    return static_cast<int>(bytes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15;
  }
  /// Returns the nibble of a row in a line of all rows, of which AWQ changes the order.
  int nibble(const std::vector<double>& bytes, std::size_t first, std::size_t row) const {
    constexpr std::size_t kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const std::size_t in_word = from_ == "awq" ? kOrder[row % 8] : row % 8;
    return half(bytes, first + row / 8 * 8 + in_word);
  }

  const Arrays& in_;
  std::size_t k_, rows_, groups_;
  std::string from_;
  bool is_half_;
  std::size_t first_code_, first_factor_;  // of the expert
};

void pack_expert(const Arrays& in, const Dims& d, const Problem& problem, std::size_t expert,
                 Outputs& out) {
  const CheckpointWeights given(in, d, problem, expert);
  const std::size_t n = d.at("n"), k = d.at("k"), blocks = (k + 63) / 64;
  const std::string gate = flag(problem, "gate"), weights = flag(problem, "weights");
  const bool is_half = weights.empty() || weights == "mxfp4";
  const bool has_zeros = in.contains("b_zero");
  const int added = flag(problem, "zero") == "less_one" ? 1 : 0;
  const int none = has_zeros || weights == "fp8_e4m3" || weights == "mxfp4" ? 0 : is_half ? 8 : 128;
  const std::size_t packed_rows = gate.empty() ? (n + 63) / 64 * 64 : (n + 31) / 32 * 64;
  std::vector<int> bytes(packed_rows * blocks * 64 / (is_half ? 2 : 1));
  for (std::size_t p = 0; p < packed_rows; ++p) {
    const std::size_t pair = gate.empty() ? p : p / 16 * 8 + p % 8, half = p / 8 % 2;
    const bool exists = pair < n;
    const std::size_t row = gate.empty()        ? p
                            : gate == "stacked" ? half * n + pair
                                                : 2 * pair + half;
    for (std::size_t c = 0; c < blocks * 64; ++c) {
      int code = none;
      if (exists && c < k) code = given.code(row, c);
      if (exists && c >= k && has_zeros) {
        code = std::min(given.zero(row, given.groups() - 1) + added, is_half ? 15 : 255);
      }
      const std::size_t block = p / 64 * blocks + c / 64, warp = p % 64 / 16;
      const std::size_t lane = p % 8 * 4 + c % 8 / 2, step = c % 64 / 16;
      const std::size_t place = p % 16 / 8 + c % 16 / 8 * 2;  // of the pair
      if (weights == "mxfp4") {
        const Mxfp4Place bits = kMxfp4Places[place];
        const int moved = code % 8 << bits.size | code / 8 << bits.sign;
        const std::size_t at = block * 2048 + warp * 512 + lane * 16 + step * 4 + c % 2 * 2;
        bytes[at] += moved % 256;
        bytes[at + 1] += moved / 256;
      } else if (is_half) {
        const std::size_t nibble = place + c % 2 * 4;
        bytes[block * 2048 + warp * 512 + lane * 16 + step * 4 + nibble / 2] +=
            code * (nibble % 2 == 0 ? 1 : 16);
      } else {
        bytes[block * 4096 + warp * 1024 + step / 2 * 512 + lane * 16 + step % 2 * 8 + place * 2 +
              c % 2] = code;
      }
    }
  }
  for (const int byte : bytes) out["packed"].add(byte, byte);
  for (std::size_t i = 0; i < packed_rows * given.groups(); ++i) {
    const std::size_t g = i / 64 % given.groups();
    const std::size_t p = i / 64 / given.groups() * 64 + i % 64 / 16 * 16 + i % 2 * 8 + i % 16 / 2;
    const std::size_t pair = gate.empty() ? p : p / 16 * 8 + p % 8, half = p / 8 % 2;
    const std::size_t row = gate.empty()        ? p
                            : gate == "stacked" ? half * n + pair
                                                : 2 * pair + half;
    const double scale = pair < n ? given.scale(row, g) : 0;
    out["packed_scale"].add(scale, std::fabs(scale));
    if (!has_zeros) continue;
    const int zero = pair < n ? (given.zero(row, g) + added) % 256 : 0;
    out["packed_zero"].add(zero, zero);
  }
}

Outputs pack_weights_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  Outputs out;
  for (std::size_t expert = 0; expert < d.at("experts"); ++expert) {
    pack_expert(in, d, problem, expert, out);
  }
  return out;
}

const InDouble kQuantizeRowsForm("quantize_rows", quantize_rows_in_double);
const InDouble kDequantizeWeightsForm("dequantize_weights", dequantize_weights_in_double);
const InDouble kPackWeightsForm("pack_weights", pack_weights_in_double);

}  // namespace
}  // namespace kernwright
