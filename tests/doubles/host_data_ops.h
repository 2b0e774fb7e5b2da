#pragma once

#include <memory>

#include "tuner/data/data_ops.h"

namespace kernwright {

/// DataOps for a FakeDevice: the host does what small kernels do on a GPU.
std::unique_ptr<DataOps> make_host_data_ops();

}  // namespace kernwright
