#include "tuner/data/workspace.h"

#include <utility>

#include "support/try.h"
#include "tuner/data/buffer_sets.h"

namespace kernwright {

Result<bool> Workspace::reserve(Device& device, std::int64_t bytes) {
  if (bytes <= bytes_) return false;
  KW_ASSIGN(buffer_, device.allocate(bytes + 2 * zone_bytes_));
  address_ = buffer_->address() + static_cast<DevicePointer>(zone_bytes_);
  bytes_ = bytes;
  return true;
}

Result<void> Workspace::poison(Device& device, std::int64_t bytes, std::uint8_t byte) const {
  return bytes == 0 ? Result<void>() : device.fill(address_, byte, bytes);
}

Result<void> Workspace::guard(Device& device, std::int64_t bytes) const {
  for (const MemoryRegion& zone : zones(bytes)) {
    KW_TRY(device.fill(zone.address, kRedZoneByte, zone.bytes));
  }
  return {};
}

std::vector<MemoryRegion> Workspace::zones(std::int64_t bytes) const {
  if (bytes == 0) return {};
  return {{address_ - static_cast<DevicePointer>(zone_bytes_), zone_bytes_},
          {address_ + static_cast<DevicePointer>(bytes), zone_bytes_}};
}

}  // namespace kernwright
