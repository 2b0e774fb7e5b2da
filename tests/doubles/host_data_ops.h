#pragma once

#include <memory>

#include "tuner/data/data_ops.h"

namespace kernwright {

/// Does on the host what small kernels do on a GPU: for a FakeDevice, whose memory is host memory.
std::unique_ptr<DataOps> make_host_data_ops();

}  // namespace kernwright
