#include "tuner/data/element.h"

#include <cstring>

#include "model/operation/dtype_format.h"

namespace kernwright {

double load_element(const void* data, DType dtype, std::int64_t index) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + bytes_of(index, dtype),
              static_cast<std::size_t>(bytes_of(1, dtype)));
  return decode(dtype, bits);
}

void store_element(void* data, DType dtype, std::int64_t index, double value) {
  const std::uint64_t bits = encode(dtype, value);
  std::memcpy(static_cast<char*>(data) + bytes_of(index, dtype), &bits,
              static_cast<std::size_t>(bytes_of(1, dtype)));
}

}  // namespace kernwright
