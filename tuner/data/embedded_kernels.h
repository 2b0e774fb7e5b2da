#pragma once

#include <span>

#include "model/files/embedded_files.h"

namespace kernwright {

/// tuner/data/kernels/: the device code of the tuner itself.
std::span<const EmbeddedFile> embedded_tuner_kernels();

}  // namespace kernwright
