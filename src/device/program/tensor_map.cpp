#include "device/program/tensor_map.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "model/operation/dtype_format.h"

namespace kernwright {
namespace {

constexpr const char* kEncode = "cuTensorMapEncodeTiled";
constexpr std::size_t kMaxRank = 5;

CUtensorMapDataType data_type(DType dtype) {
  const bool is_real = !is_integer(dtype);
  switch (dtype_bits(dtype)) {
    case 64:
      return is_real ? CU_TENSOR_MAP_DATA_TYPE_FLOAT64 : CU_TENSOR_MAP_DATA_TYPE_INT64;
    case 32:
      return is_real ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_INT32;
    case 16:
      return dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

std::optional<CUtensorMapSwizzle> swizzle_mode(std::int64_t bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return std::nullopt;
  }
}

std::optional<CUtensorMapL2promotion> promotion_mode(std::int64_t bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_L2_PROMOTION_NONE;
    case 64:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case 256:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    default:
      return std::nullopt;
  }
}

}  // namespace

DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan,
                               std::span<const std::int64_t> numbers, CUdeviceptr address,
                               CUtensorMap& map) {
  const std::size_t rank = plan.box.size();
  const auto swizzle = swizzle_mode(plan.swizzle);
  const auto promotion = promotion_mode(plan.l2_promotion);
  if (rank < 1 || rank > kMaxRank || numbers.size() != 2 * rank - 1 || !swizzle || !promotion) {
    return {kEncode, CUDA_ERROR_INVALID_VALUE};
  }
  std::array<cuuint64_t, kMaxRank> dims{};
  std::ranges::copy(numbers.first(rank), dims.begin());
  // Rank 1 has no stride, but the driver expects an array.
  std::array<cuuint64_t, kMaxRank> strides{};
  std::ranges::copy(numbers.subspan(rank), strides.begin());
  constexpr std::array<cuuint32_t, kMaxRank> kElementStrides{1, 1, 1, 1, 1};
  return {kEncode, api.tensor_map_encode_tiled(
                       &map, data_type(plan.dtype), static_cast<cuuint32_t>(rank),
                       reinterpret_cast<void*>(address), dims.data(), strides.data(),
                       plan.box.data(), kElementStrides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                       *swizzle, *promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)};
}

DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan, CUdeviceptr address,
                               CUtensorMap& map) {
  std::vector<std::int64_t> numbers(plan.dims.begin(), plan.dims.end());
  numbers.insert(numbers.end(), plan.strides_bytes.begin(), plan.strides_bytes.end());
  return encode_tensor_map(api, plan, numbers, address, map);
}

std::optional<std::size_t> find_address_word(const DriverApi& api, const CUtensorMap& map) {
  // Addresses of 47 bits, as in user space, aligned to 16 bytes.
  constexpr std::array<CUdeviceptr, 2> kAddresses{0x5555'5555'5550, 0x2aaa'aaaa'aaa0};
  constexpr std::size_t kWords = std::size(CUtensorMap{}.opaque);
  std::array<CUtensorMap, 2> changed{map, map};
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (api.tensor_map_replace_address(&changed[i], reinterpret_cast<void*>(kAddresses[i])) !=
        CUDA_SUCCESS) {
      return std::nullopt;
    }
  }
  std::optional<std::size_t> found;
  for (std::size_t word = 0; word < kWords; ++word) {
    const std::array<cuuint64_t, 2> now{changed[0].opaque[word], changed[1].opaque[word]};
    if (now[0] == map.opaque[word] && now[1] == map.opaque[word]) continue;
    if (found || now[0] != kAddresses[0] || now[1] != kAddresses[1]) return std::nullopt;
    found = word;
  }
  return found;
}

}  // namespace kernwright
