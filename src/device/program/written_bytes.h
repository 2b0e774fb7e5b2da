#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"

namespace kernwright {

/// The bytes that were written, as ranges of addresses. Ranges that touch are one.
class WrittenBytes {
 public:
  /// Makes `add` allocate nothing for up to `ranges` ranges.
  void reserve(std::size_t ranges) { ranges_.reserve(ranges); }
  void clear() { ranges_.clear(); }
  void add(DevicePointer first, std::int64_t bytes);
  /// Returns whether one of the bytes was written.
  bool overlap(DevicePointer first, std::int64_t bytes) const;

 private:
  struct Range {
    DevicePointer first;
    DevicePointer end;
  };
  std::vector<Range> ranges_;  ///< by address
};

}  // namespace kernwright
