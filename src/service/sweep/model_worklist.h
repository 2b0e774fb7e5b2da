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

/// The largest number of sequences that a step decodes; more tokens are of prompts.
inline constexpr std::int64_t kMostSequences = 512;

/// How a model is run, of which the worklist has the part of one GPU.
struct ModelUse {
  std::vector<std::int64_t> tokens;    ///< rows of a step: its batch, or batch times prompt
  std::vector<std::int64_t> contexts;  ///< keys of a sequence in the cache, those of the step too
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
/// The list has everything but grouped products: the embedding, attention, the products around it,
/// of dense and shared feed-forward layers, of routers and of the head, both with what engines fuse
/// and without, norms, rotations and activations, and the choice of the most probable token. Parts
/// that are left out are in the notes, each with its reason, and so are operations that `catalog`
/// lacks.
///
/// Attention is listed for what a step of t tokens may be: one prompt of t tokens; one token each
/// of t sequences, up to `kMostSequences`, with each context; and t tokens of one sequence with
/// each longer context, as of chunked prompts and of drafted tokens. Keys of the latter two are in
/// a cache, for which both a contiguous one and one of pages of 16 tokens are listed. Beside the
/// latter stands kv_append, which normalises and rotates heads too; rope appends to the former. A
/// step is listed once more in as few kernels as there can be: products with a split or a sum
/// behind and, of up to `kMostSequences`, with a norm in front (where `matmul` has that for so many
/// rows), and attention that appends. These are the problems of kernwright_decode, among the
/// examples, and of models that `kernwright.torch.patch` fuses, whose caches have all tokens of a
/// head side by side. Of models that it does not fuse q, k and v are products of their own. Layers
/// with and without a window are listed where a model has both and the window is shorter than the
/// keys. Of a latent attention there are prompts alone, with the keys and values of all heads.
///
/// Tensor parallelism splits the columns of the first product of a pair and the rows of the second.
/// Key and value heads are repeated where there are fewer of them than GPUs. Routers, norms and the
/// low-rank products of a latent attention are on each GPU. Weights that are quantised to fp8 with
/// one scale a tensor give fp8 products. Other quantised weights give none.
///
/// Errors: those of `read_model_config`; `invalid_argument` where the split does not divide a size,
/// which it names, where a step or a context is empty or has more than 2^30 tokens, or where more
/// than `kMostProblems` are asked for, repeated ones included.
Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog);

}  // namespace kernwright
