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

/// How a model is run, of which the worklist has the part of one GPU.
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

/// Lists the problems of a model from the text of its `config.json`, as model hubs publish it
/// (`read_model_config`).
///
/// The list has everything but attention itself and grouped products: the products around
/// attention, of dense and shared feed-forward layers, of routers and of the head, both with what
/// engines fuse and without, and norms, rotations and activations. Parts that are left out are in
/// the notes, each with its reason, and so are operations that `catalog` lacks.
///
/// Tensor parallelism splits the columns of the first product of a pair and the rows of the second.
/// Key and value heads are repeated where there are fewer of them than GPUs. Routers, norms and the
/// low-rank products of a latent attention are on each GPU. Weights that are quantised to fp8 with
/// one scale a tensor give fp8 products. Other quantised weights give none.
///
/// Errors: those of `read_model_config`; `invalid_argument` where the split does not divide a size,
/// which it names, or where there are more than `kMostProblems`.
Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog);

}  // namespace kernwright
