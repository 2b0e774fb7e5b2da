#pragma once

#include "device/driver/nvml.h"

namespace kernwright {

/// An H200 at rest, as NVML tells of it. Tests change what it says, or leave functions out.
class FakeNvml {
 public:
  FakeNvml();
  ~FakeNvml();

  NvmlApi api;  ///< calls the one living FakeNvml
  std::string uuid = "GPU-0000";
  GpuFacts says;    ///< what the functions answer; an empty field makes its function fail
  int failing = 3;  ///< the error of those that fail: not supported
};

}  // namespace kernwright
