#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "device/driver/cuda_context.h"
#include <kernwright/result.h>

namespace kernwright {

/// Physical pages that are mapped in the middle of a range of reserved addresses, whose first and
/// last page stay unmapped. The context must be current for `make`.
class FencedMemory final : public DeviceBuffer {
 public:
  static Result<std::unique_ptr<DeviceBuffer>> make(const std::shared_ptr<CudaContext>& context,
                                                    std::int64_t bytes);
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;
  ~FencedMemory() override;

  DevicePointer address() const override { return reserved_ + page_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(bytes_); }

 private:
  explicit FencedMemory(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  Result<void> map(std::int64_t bytes);

  std::shared_ptr<CudaContext> context_;
  std::size_t page_ = 0;
  std::size_t bytes_ = 0;
  CUmemGenericAllocationHandle pages_ = 0;
  CUdeviceptr reserved_ = 0;
  bool created_ = false;
  bool mapped_ = false;
};

}  // namespace kernwright
