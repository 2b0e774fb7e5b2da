#pragma once

#include <span>

#include "model/files/embedded_files.h"

namespace kernwright {

/// correction.json of this folder, alone.
std::span<const EmbeddedFile> embedded_correction();

}  // namespace kernwright
