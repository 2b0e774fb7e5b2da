#include <iterator>

#include <kernwright/dtype.h>

namespace kernwright {
namespace {

struct DTypeRow {
  std::string_view name;
  std::int64_t bytes;
};

constexpr DTypeRow kRows[] = {{"bf16", 2},     {"fp16", 2}, {"fp32", 4},    {"fp64", 8},
                              {"fp8_e4m3", 1}, {"int8", 1}, {"int32", 4},   {"int64", 8},
                              {"uint8", 1},    {"bool", 1}, {"fp8_e5m2", 1}};
static_assert(std::size(kRows) == std::size(kDTypes));

}  // namespace

std::int64_t byte_size(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].bytes; }

std::string_view to_string(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace kernwright
