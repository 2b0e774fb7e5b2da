#pragma once
// The fields of a model's config.json that decide the step that decodes it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace decode {

namespace kw = kernwright;

/// Parameters of rope_type "llama3", which stretches the rotations whose wavelength exceeds the
/// context length that the model was first trained on.
struct RopeScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 1;
  double original_positions = 0;
};

/// A decoder-only transformer of the Llama or the Qwen3 family. Sizes are in elements.
struct ModelConfig {
  std::string model_type;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of k and v; divides `heads`
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  ///< the largest number of tokens of a sequence
  std::int64_t window = 0;     ///< keys that some layers see at most; 0: all see all
  double norm_epsilon = 0;
  double rope_theta = 0;
  std::optional<RopeScaling> rope_scaling;
  bool query_norm = false;  ///< each head of q and k is normalised, as in Qwen3
  bool tied_head = false;   ///< the embedding is the head, too

  std::int64_t query_columns() const { return heads * head_dim; }
  std::int64_t kv_columns() const { return kv_heads * head_dim; }
  std::int64_t qkv_columns() const { return query_columns() + 2 * kv_columns(); }
};

/// Reads the text of a `config.json`; `file` is its name in messages. Errors: `invalid_argument`
/// for a model that the decoder does not compute, naming the field, its value and what it must be.
kw::Result<ModelConfig> parse_config(std::string_view text, const std::string& file);

/// Checks that sequences may have `tokens` tokens. Errors: see `parse_config`; `invalid_argument`
/// if they are more than the model's positions, or than a window which layers have.
kw::Result<void> check_tokens(const ModelConfig& config, std::int64_t tokens);

/// The cosine and the sine of each position and pair of elements of a head, both
/// [positions, head_dim / 2].
struct RopeTable {
  std::vector<float> cosine;
  std::vector<float> sine;
};
RopeTable rope_table(const ModelConfig& config, std::int64_t positions);

/// The bytes of device memory that a step must read or write.
struct StepBytes {
  std::int64_t weights = 0;    ///< all of the layers and the head, once
  std::int64_t embedding = 0;  ///< one row for each sequence
  std::int64_t cache = 0;      ///< keys and values of old tokens read, of the new ones written

  std::int64_t all() const { return weights + embedding + cache; }
};

/// Returns the bytes of a step. `old_tokens` counts the old tokens of all sequences together.
StepBytes step_bytes(const ModelConfig& config, std::int64_t batch, std::int64_t old_tokens);

}  // namespace decode
