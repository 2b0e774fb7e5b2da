#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "tuner/data/data_ops.h"
#include <kernwright/result.h>

namespace kernwright {

/// The workspace that all candidates share. Its buffer only grows, and has room for a red zone on
/// either side of the part that is in use.
class Workspace {
 public:
  explicit Workspace(std::int64_t zone_bytes) : zone_bytes_(zone_bytes) {}

  /// Makes room. Returns true if the workspace moved. Errors: out of memory; the old workspace
  /// stays then.
  Result<bool> reserve(Device& device, std::int64_t bytes);

  /// The address of the first byte; 0 before anything was reserved.
  DevicePointer address() const { return buffer_ == nullptr ? 0 : address_; }

  /// Fills the first `bytes` bytes.
  Result<void> poison(Device& device, std::int64_t bytes, std::uint8_t byte) const;
  /// Fills the red zones around the first `bytes` bytes.
  Result<void> guard(Device& device, std::int64_t bytes) const;
  /// The red zones before and after the first `bytes` bytes.
  std::vector<MemoryRegion> zones(std::int64_t bytes) const;

 private:
  std::int64_t zone_bytes_;
  std::int64_t bytes_ = 0;
  DevicePointer address_ = 0;
  std::unique_ptr<DeviceBuffer> buffer_;
};

}  // namespace kernwright
