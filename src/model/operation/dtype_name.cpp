#include "model/operation/dtype_name.h"

#include <string>

#include "support/spelling.h"

namespace kernwright {
namespace {

struct Alias {
  std::string_view alias;
  std::string_view name;
};

constexpr Alias kAliases[] = {
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"f16", "fp16"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"f32", "fp32"},
    {"float64", "fp64"},
    {"double", "fp64"},
    {"f64", "fp64"},
    {"float8_e4m3fn", "fp8_e4m3"},
    {"float8_e4m3", "fp8_e4m3"},
    {"e4m3", "fp8_e4m3"},
    {"float8_e5m2", "fp8_e5m2"},
    {"e5m2", "fp8_e5m2"},
    {"int", "int32"},
    {"long", "int64"},
};

}  // namespace

std::optional<DType> dtype_meant(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const Alias& alias : kAliases) {
    if (lower == alias.alias) return parse_dtype(alias.name);
  }
  return parse_dtype(lower);
}

}  // namespace kernwright
