#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog.h"
#include <kernwright/dtype.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// What one GPU runs of a model.
struct ModelUse {
  std::vector<std::int64_t> tokens;  ///< rows of a step: its batch, or batch times prompt
  std::int64_t tensor_parallel = 1;
  DType dtype = DType::bf16;
};

/// The problems of a decoder-only transformer, and what of it is not among them.
struct ModelWorklist {
  std::vector<Problem> problems;  ///< normalised, each once
  std::vector<std::string> notes;
};

/// From the text of a `config.json` as model hubs publish it: the products of attention (q, k and v
/// in one, and the output) and of the feed-forward layers (gate and up in one), the head, the
/// norms and the gated activation, split over the GPUs as tensor parallelism does: columns of the
/// first product of a pair, rows of the second; key and value heads are repeated where there are
/// fewer of them than GPUs. Reads hidden_size, num_attention_heads, num_key_value_heads, head_dim,
/// intermediate_size, vocab_size, hidden_act, rms_norm_eps and the counts of experts. Of operations
/// that `catalog` lacks no problem is made, and a note says so. Errors: `invalid_argument` naming
/// the field that is missing, or that the split does not divide.
Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog);

}  // namespace kernwright
