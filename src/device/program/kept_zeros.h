#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"
#include "device/driver/driver.h"

namespace kernwright {

/// Zeros for kernels that need them and leave them. To fill them before each launch takes longer
/// than many a kernel. Launches on one stream follow each other, so they share their zeros. In a
/// capture a stream has others, which the graph keeps. Thread-safe.
class KeptZeros {
 public:
  explicit KeptZeros(const DriverApi& api);
  ~KeptZeros();
  KeptZeros(const KeptZeros&) = delete;
  KeptZeros& operator=(const KeptZeros&) = delete;

  /// Returns the address of `bytes` zeros for launches on `stream`, aligned to 256. Allocates if
  /// the stream had less. Returns 0 if there are none: for a stream of another context than the
  /// first, for more streams than `kMostStreams`, for the default stream of a thread in a capture,
  /// or if a call to the driver fails. Ends no capture.
  DevicePointer of(CUstream stream, std::size_t bytes) const;

  /// Outside of captures: nobody says when a stream has ended, so its zeros are never used again.
  static constexpr std::size_t kMostStreams = 256;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace kernwright
