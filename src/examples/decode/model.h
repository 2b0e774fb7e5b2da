#pragma once
// The weights of a model on the host, as the kernels of a step take them.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config.h"
#include "numbers.h"
#include "safetensors.h"

namespace decode {

/// Products' weights are [columns out, columns in]. Weights that share their input are one tensor,
/// one below the other.
struct LayerWeights {
  Tensor input_norm;  ///< [hidden]
  Tensor qkv;         ///< rows of q, of k, of v
  Tensor query_norm;  ///< [head_dim], or empty
  Tensor key_norm;    ///< [head_dim], or empty
  Tensor output;
  Tensor inner_norm;  ///< [hidden]
  Tensor gate_up;     ///< rows of the gates, then of the values that they open
  Tensor down;
};

struct ModelWeights {
  Tensor embedding;  ///< [vocabulary, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;  ///< [hidden]
  Tensor head;        ///< [vocabulary, hidden]; empty if it is the embedding

  const Tensor& head_or_embedding() const { return head.empty() ? embedding : head; }
};

/// Returns one tensor of a model by the name that it has in files of transformers.
using TensorSource = std::function<kw::Result<Tensor>(const std::string& name,
                                                      const std::vector<std::int64_t>& shape)>;

/// Reads all weights of a model. Errors: the errors of the source; `invalid_argument` if the host
/// has less memory than they take.
kw::Result<ModelWeights> read_model(const ModelConfig& config, const TensorSource& source);

/// Returns a source of random weights, with which every tensor matters: elements of a matrix are
/// uniform with a standard deviation of 1 / sqrt(columns), so that products keep the size of their
/// input, and elements of a norm are uniform from 0.5 to 1.5. The same seed, name and place produce
/// the same element.
TensorSource random_source(std::uint64_t seed);

/// Returns `count` elements that are uniform between `low` and `high`.
Tensor random_tensor(std::int64_t count, double low, double high, std::uint64_t seed);

}  // namespace decode
