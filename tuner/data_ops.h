#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// How input values are drawn. Both are seeded and counter-based: element i of a tensor depends on
/// the seed and i alone.
enum class InputDistribution {
  normal,         ///< normal(0, 1), rounded to the storage type: realistic bit patterns, for timing
  small_integers  ///< {-3..3}: sums are exact in fp32, so any summation order gives equal results
};

/// Elements of integer dtypes are small integers under either distribution.
constexpr bool is_integer(DType dtype) { return dtype == DType::int8 || dtype == DType::int32; }

/// What `CheckReport::max_error` says of a NaN, and the most it ever says.
inline constexpr double kWorstError = 1e30;

/// The bound of one checked tensor: |x - r| <= accumulate_unit * magnitude + output_unit * |r| +
/// error_floor(dtype).
struct ErrorBound {
  double accumulate_unit = 0;  ///< c * sqrt(reduction) * u_acc
  double output_unit = 0;      ///< rounding of the output dtype
};

/// Work on whole tensors in device memory: drawing inputs, comparing outputs. On a GPU it is done
/// by small kernels of our own; on a FakeDevice, whose memory is host memory, by the host.
class DataOps {
 public:
  virtual ~DataOps() = default;

  virtual Result<void> draw(DevicePointer to, DType dtype, std::int64_t elements,
                            InputDistribution distribution, std::uint64_t seed) = 0;

  /// Compares `elements` of `actual` (in `dtype`) with fp32 `reference` and `magnitude`. NaN never
  /// passes. `first_mismatch` of the report holds the flat index only.
  virtual Result<CheckReport> compare(DevicePointer actual, DType dtype, std::int64_t elements,
                                      DevicePointer reference, DevicePointer magnitude,
                                      const ErrorBound& bound) = 0;
};

/// Compiles and loads the kernels behind `DataOps` on `device`.
Result<std::unique_ptr<DataOps>> make_device_data_ops(Device& device, CompilePool& pool);
std::unique_ptr<DataOps> make_host_data_ops();

}  // namespace kernwright
