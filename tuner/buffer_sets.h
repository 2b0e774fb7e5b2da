#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/operation.h"
#include "tuner/data_ops.h"
#include <kernwright/result.h>

namespace kernwright {

/// How many buffer sets a problem needs. Cold: at least two, and as many as pass 3x the L2
/// together; bounded by the memory there is and by what one graph holds. Warm: one.
struct SetCount {
  std::int64_t set_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;  ///< that all sets together may take
  bool cold = true;

  int count() const;
};

/// All tensors of a problem, several times, in one allocation: every tensor at a multiple of 256
/// bytes, each set at the same offsets. Inputs are drawn once per set from the seed; in-place
/// tensors can be drawn again with the same values.
class BufferSets {
 public:
  /// Errors: `device` where not even one set fits.
  static Result<BufferSets> make(Device& device, DataOps& data_ops, std::vector<TensorShape> shapes,
                                 bool cold, std::uint64_t seed);

  int count() const { return count_; }
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  DevicePointer address(int set, std::size_t tensor) const;

  /// The addresses of one set in the order of `tensors`, matched by name; 0 for names not held.
  std::vector<DevicePointer> addresses(int set, std::span<const TensorShape> tensors) const;

  /// Fills the outputs of a set with a byte, and draws its in-place tensors anew.
  Result<void> poison(Device& device, DataOps& data_ops, int set, std::uint8_t byte) const;

 private:
  Result<void> draw(DataOps& data_ops, int set, std::size_t tensor) const;

  std::vector<TensorShape> shapes_;
  std::vector<std::int64_t> offsets_;
  std::int64_t set_bytes_ = 0;
  int count_ = 0;
  std::uint64_t seed_ = 0;
  std::unique_ptr<DeviceBuffer> arena_;
};

}  // namespace kernwright
