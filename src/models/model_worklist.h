#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
#include <kernwright/dtype.h>
#include <kernwright/model.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// Limits the problems that a worklist may stand for.
inline constexpr std::size_t kMostProblems = 100'000;

/// Says how a model is run. A worklist has the part of one GPU.
struct ModelUse {
  std::vector<std::int64_t> tokens;    ///< rows of a step: its batch, or batch times prompt
  std::vector<std::int64_t> contexts;  ///< keys of a sequence in the cache, those of the step too
  std::int64_t tensor_parallel = 1;
  DType dtype = DType::bf16;
};

/// Holds the problems of a model, and sentences on what is not among them.
struct ModelWorklist {
  std::vector<Problem> problems;  ///< normalised, each once
  std::vector<std::string> notes;
};

/// Lists the problems of a model from the text of its `config.json`, by the file of its type in
/// `catalog.models()` (see `templates/README.md`). The notes name parts that are left out, each
/// with its reason, and defaults of transformers that were taken. The dtype fp8_e4m3 stands for
/// weights with one scale a tensor and 16 bits for everything else.
///
/// Errors: `invalid_argument` for a config that cannot be read, naming file, line and field; for a
/// size that the GPUs do not divide; for a step or a context that is empty or has more than 2^30
/// tokens; and for more than `kMostProblems` problems, repeated ones included.
Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog);

/// Does what `read_model` does, with the types of `catalog`.
Result<ModelValues> model_values(std::string_view config, std::string_view file,
                                 const std::vector<std::string>& names, const Catalog& catalog);

}  // namespace kernwright
