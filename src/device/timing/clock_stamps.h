#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/driver/cuda_context.h"
#include <kernwright/result.h>

namespace kernwright {

/// Reads the clock of an SM and the GPU's global timer in stream order, before and after a sample.
/// The kernel is PTX that the driver assembles, so this layer needs no compiler. The context must
/// be current.
class ClockStamps {
 public:
  /// Returns null if the driver cannot assemble or load the kernel.
  static std::unique_ptr<ClockStamps> make(const std::shared_ptr<CudaContext>& context,
                                           int sm_count);

  enum class Place { before, after };
  DriverStatus enqueue(Place place);

  /// The time and the clock cycles between the two stamps, once the stream has passed both.
  struct Span {
    double sm_mhz = 0;
    double us = 0;
  };
  std::optional<Span> read() const;

 private:
  /// The hardware places the blocks, and each writes the slot of its SM. Both stamps are there for
  /// one of the first few SMs.
  static constexpr std::size_t kSlots = 8;
  struct Stamp {
    std::uint64_t clock;
    std::uint64_t nanoseconds;
  };

  ClockStamps(ContextOwned<LibraryHandle> library, ContextOwned<HostMemoryHandle> memory,
              CUkernel kernel, CUdeviceptr address, int sm_count)
      : library_(std::move(library)),
        memory_(std::move(memory)),
        kernel_(kernel),
        address_(address),
        sm_count_(sm_count) {}

  ContextOwned<LibraryHandle> library_;
  ContextOwned<HostMemoryHandle> memory_;
  CUkernel kernel_;
  CUdeviceptr address_;
  int sm_count_;
};

}  // namespace kernwright
