#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/operation/draw.h"
#include "model/operation/layout.h"
#include "model/result/measurement.h"
#include <kernwright/result.h>

namespace kernwright {

/// The dtype that a reference is written in. For integers of 32 and 64 bits it is int64, and they
/// must equal it. All other results are compared with fp32.
constexpr DType reference_dtype(DType output) {
  const bool wide = output == DType::int32 || output == DType::int64;
  return wide ? DType::int64 : DType::fp32;
}

/// The value of `max_error` for a NaN, and the largest that it ever has.
inline constexpr double kWorstError = 1e30;

/// The bound of one checked tensor: |x - r| <= accumulate_unit * magnitude + output_unit * |r| +
/// absolute + error_floor(dtype). Both x and r are taken no further than range_end(dtype). If
/// `exact`, x must equal r rounded to the tensor's dtype. A NaN in x or r does not pass, unless
/// `nan` asks for it. Then, if r is NaN, x must be the counterpart of NaN in the tensor's dtype:
/// NaN, or 0 in integers. An infinite r passes only with `infinite`, and x must then equal it.
struct ErrorBound {
  double accumulate_unit = 0;  ///< c * sqrt(reduction) * u_acc, plus the same of an intermediate
  double output_unit = 0;      ///< rounding of the output dtype
  bool exact = false;
  double absolute = 0;  ///< of values that were subnormal on their way
  bool nan = false;
  bool infinite = false;
};

/// The gaps between the rows of a tensor hold this byte, which is a NaN in every format, and must
/// keep it.
inline constexpr std::uint8_t kGapByte = 0xFF;

/// Bytes in device memory, anywhere within an allocation.
struct MemoryRegion {
  DevicePointer address = 0;
  std::int64_t bytes = 0;
};

/// The result of one comparison or one hash.
struct Finding {
  double max_error = 0;         ///< in units of the bound
  std::int64_t mismatches = 0;  ///< beyond it, including NaN that was not asked for
  std::int64_t first = -1;  ///< the place of the first of them, in elements of the tensor's span
  std::uint64_t hash = 0;
};

/// Work on whole tensors in device memory: drawing inputs, comparing and hashing. It is done in
/// stream order and not waited for, and what was found is read in one go. On a GPU small kernels of
/// our own do it. On a FakeDevice, whose memory is host memory, the host does it.
class DataOps {
 public:
  /// Findings that can be outstanding.
  static constexpr std::size_t kMaxFindings = 1024;

  virtual ~DataOps() = default;

  /// Draws a tensor. Element i is in row i / columns. The gaps between rows become `kGapByte`.
  virtual Result<void> draw(DevicePointer to, DType dtype, const Layout& layout, const Draw& draw,
                            std::uint64_t seed) = 0;

  /// Fills the gaps between rows with `kGapByte`.
  virtual Result<void> fill_gaps(DevicePointer to, DType dtype, const Layout& layout) = 0;

  /// Compares the elements of `actual` (in `dtype`) with the elements of `reference` (in its
  /// `reference_dtype`) and of `magnitude` (in fp32), which are contiguous. `magnitude` may be 0 if
  /// the bound is exact or the reference is int64. The gaps between rows must hold `kGapByte`.
  /// Returns the number of its finding.
  virtual Result<std::size_t> enqueue_compare(DevicePointer actual, DType dtype,
                                              const Layout& layout, DevicePointer reference,
                                              DevicePointer magnitude, const ErrorBound& bound) = 0;

  /// Hashes every region: its bytes and their places in it. The findings are numbered from the
  /// value that is returned.
  virtual Result<std::size_t> enqueue_hash(std::span<const MemoryRegion> regions) = 0;

  /// Waits and returns all findings since the last call.
  virtual Result<std::vector<Finding>> take_findings() = 0;

  /// Compares and waits. Outstanding findings are lost. `first_mismatch` of the report holds only
  /// the place.
  Result<CheckReport> compare(DevicePointer actual, DType dtype, const Layout& layout,
                              DevicePointer reference, DevicePointer magnitude,
                              const ErrorBound& bound);
};

/// The compile request for the kernels of `DataOps` for tensors of one dtype.
Result<CompileRequest> data_ops_request(DType dtype, int sm_arch);

/// The `DataOps` of a GPU. Compiles and loads its kernels on `device`.
Result<std::unique_ptr<DataOps>> make_device_data_ops(Device& device, CompilePool& pool);

}  // namespace kernwright
