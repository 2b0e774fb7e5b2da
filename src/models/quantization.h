#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// Names how the weights of the layers' products are kept. `fp8_tensors` have one scale a tensor
/// for weights and activations each, known before the launch. `fp8_blocks` have a scale for each
/// block of 128 x 128, and for each 128 elements of a row of activations. `int8_rows` and
/// `fp8_rows` have a scale for each row of weights, and for each row of activations. `integers` of
/// 4 or 8 bits have one for each group of columns, and activations are of 16 bits.
enum class Weights { plain, fp8_tensors, fp8_blocks, int8_rows, fp8_rows, integers, other };

struct Quantization {
  Weights weights = Weights::plain;
  std::int64_t bits = 0;                ///< of integers
  std::int64_t group = 0;               ///< columns that share a scale; 0: all of a row
  bool has_zeros = false;               ///< zero points that need not be in the middle
  bool mxfp4_experts = false;           ///< experts are in mxfp4, and all else is plain
  std::string text = {};                ///< describes weights that are not plain
  std::vector<std::string> notes = {};  ///< such as on modules that are kept otherwise
};

/// Reads the quantization_config of `text`, or else of `root`. Errors: `invalid_argument` naming
/// `file` and line if it is not an object.
Result<Quantization> read_quantization(const JsonNode& root, const JsonNode& text,
                                       std::string_view file);

}  // namespace kernwright
