#pragma once

#include "service/sweep/config_fields.h"
#include "service/sweep/model_worklist_config.h"
#include "support/json.h"

namespace kernwright {

/// Reads how weights are kept from the quantization_config that `root` or the model's own fields
/// have, and notes modules that it leaves as they are.
void read_quantization(const JsonNode& root, ConfigFields& fields, ModelConfig& model);

}  // namespace kernwright
