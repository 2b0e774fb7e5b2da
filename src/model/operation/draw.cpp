#include "model/operation/draw.h"

#include <limits>

namespace kernwright {

std::string_view to_string(DrawKind kind) {
  switch (kind) {
    case DrawKind::normal:
      return "normal";
    case DrawKind::small_integers:
      return "small_integers";
    case DrawKind::signs:
      return "signs";
    case DrawKind::uniform:
      return "uniform";
    case DrawKind::permutation:
      return "permutation";
    case DrawKind::offsets:
      return "offsets";
    case DrawKind::constant:
      return "constant";
    case DrawKind::kernel:
      return "kernel";
  }
  return "";
}

bool is_integer(DType dtype) { return integer_range(dtype).has_value(); }

std::optional<IntegerRange> integer_range(DType dtype) {
  switch (dtype) {
    case DType::int8:
      return IntegerRange{-128, 127};
    case DType::uint8:
      return IntegerRange{0, 255};
    case DType::boolean:
      return IntegerRange{0, 1};
    case DType::int32:
      return IntegerRange{std::numeric_limits<std::int32_t>::min(),
                          std::numeric_limits<std::int32_t>::max()};
    case DType::int64:
      return IntegerRange{-(std::int64_t{1} << 53), std::int64_t{1} << 53};
    default:
      return std::nullopt;
  }
}

}  // namespace kernwright
