#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
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

/// From the text of a `config.json` as model hubs publish it (`read_model_config`), what is no
/// attention and no grouped product: the products of attention and of dense and shared feed-forward
/// layers, of routers and of the head, with what engines fuse and without, norms, rotations and
/// activations. Tensor parallelism splits columns of the first product of a pair and rows of the
/// second; key and value heads are repeated where there are fewer of them than GPUs; routers, norms
/// and the low-rank products of a latent attention are on each. Weights that are quantised to fp8
/// with one scale a tensor give fp8 products, others none. What is left out is in the notes, each
/// with its reason, and so are operations that `catalog` lacks. Errors: those of
/// `read_model_config`, and `invalid_argument` naming what the split does not divide, or for more
/// than `kMostProblems`.
Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog);

}  // namespace kernwright
