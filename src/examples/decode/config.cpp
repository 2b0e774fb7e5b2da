#include "config.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <kernwright/model.h>

namespace decode {
namespace {

constexpr double kPi = 3.14159265358979323846;

kw::Error refusal(const std::string& file, const std::string& why) {
  return {kw::ErrorCode::invalid_argument, file + ": " + why};
}

/// The rotations that are stretched; nothing where they are not. Errors: a way to stretch them
/// that is not decoded.
kw::Result<std::optional<RopeScaling>> read_scaling(std::string_view text, const std::string& file,
                                                    const std::string& type) {
  if (type == "default") return std::optional<RopeScaling>();
  if (type != "llama3") {
    return refusal(file,
                   "rope_type is \"" + type + "\", only \"llama3\" and \"default\" are decoded");
  }
  const kw::Result<kw::ModelValues> read = kw::read_model(
      text, file, {"rope_factor", "rope_low_factor", "rope_high_factor", "rope_positions"});
  if (!read) return read.error();
  const auto number = [&](const char* name) { return std::get<double>(read->at(name)); };
  const RopeScaling scaling{number("rope_factor"), number("rope_low_factor"),
                            number("rope_high_factor"), number("rope_positions")};
  if (!(scaling.low_frequency_factor < scaling.high_frequency_factor)) {
    return refusal(file, "low_freq_factor " + std::to_string(scaling.low_frequency_factor) +
                             " is not below high_freq_factor " +
                             std::to_string(scaling.high_frequency_factor));
  }
  return std::optional(scaling);
}

}  // namespace

kw::Result<ModelConfig> parse_config(std::string_view text, const std::string& file) {
  const kw::Result<kw::ModelValues> read =
      kw::read_model(text, file,
                     {"type", "hidden", "layers", "heads", "kv_heads", "head_dim", "inner",
                      "vocabulary", "positions", "shortest_window", "epsilon", "theta", "rope_type",
                      "query_norm", "tied_head", "activation", "biased", "rotates", "plain"});
  if (!read) return read.error();
  const auto word = [&](const char* name) { return std::get<std::string>(read->at(name)); };
  const auto number = [&](const char* name) { return std::get<double>(read->at(name)); };
  const auto size = [&](const char* name) { return static_cast<std::int64_t>(number(name)); };
  ModelConfig config;
  config.model_type = word("type");
  if (config.model_type != "llama" && config.model_type != "qwen3") {
    return refusal(file, "model_type is \"" + config.model_type +
                             "\", only \"llama\" and \"qwen3\" are decoded");
  }
  config.hidden = size("hidden");
  config.layers = size("layers");
  config.heads = size("heads");
  config.kv_heads = size("kv_heads");
  config.head_dim = size("head_dim");
  config.intermediate = size("inner");
  config.vocabulary = size("vocabulary");
  config.positions = size("positions");
  config.window = size("shortest_window");
  config.norm_epsilon = number("epsilon");
  config.rope_theta = number("theta");
  config.query_norm = size("query_norm") != 0;
  config.tied_head = size("tied_head") != 0;
  if (config.heads % config.kv_heads != 0) {
    return refusal(file, "num_attention_heads " + std::to_string(config.heads) +
                             " is no multiple of num_key_value_heads " +
                             std::to_string(config.kv_heads));
  }
  if (config.head_dim == config.hidden / config.heads && config.hidden % config.heads != 0) {
    return refusal(file, "hidden_size " + std::to_string(config.hidden) +
                             " is no multiple of num_attention_heads " +
                             std::to_string(config.heads));
  }
  if (config.head_dim % 8 != 0) {
    return refusal(file, "head_dim " + std::to_string(config.head_dim) + " is no multiple of 8");
  }
  if (word("activation") != "silu") {
    return refusal(file, "hidden_act is \"" + word("activation") + "\", only \"silu\" is decoded");
  }
  if (size("biased") != 0)
    return refusal(file, "attention_bias or mlp_bias is true, only false is decoded");
  if (size("rotates") == 0) return refusal(file, "partial_rotary_factor: only 1 is decoded");
  if (size("plain") == 0)
    return refusal(file, "quantization_config: only weights without are decoded");
  kw::Result<std::optional<RopeScaling>> scaling = read_scaling(text, file, word("rope_type"));
  if (!scaling) return scaling.error();
  config.rope_scaling = *scaling;
  return config;
}

kw::Result<void> check_tokens(const ModelConfig& config, std::int64_t tokens) {
  const auto refuse = [&](const char* field, std::int64_t value) {
    return kw::Error{kw::ErrorCode::invalid_argument,
                     std::string(field) + ": " + std::to_string(value) + " is less than the " +
                         std::to_string(tokens) + " tokens of a sequence"};
  };
  if (tokens > config.positions) return refuse("max_position_embeddings", config.positions);
  if (config.window != 0 && tokens > config.window) return refuse("sliding_window", config.window);
  return {};
}

RopeTable rope_table(const ModelConfig& config, std::int64_t positions) {
  const std::int64_t pairs = config.head_dim / 2;
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    double frequency =
        std::pow(config.rope_theta, -static_cast<double>(pair) / static_cast<double>(pairs));
    if (config.rope_scaling) {
      // The number of turns within the context length of the first training decides: with many
      // turns the rotation stays, with few it is slower by `factor`, and between them it is a mean
      // of both.
      const RopeScaling& scaling = *config.rope_scaling;
      const double turns = scaling.original_positions * frequency / (2 * kPi);
      const double low = scaling.low_frequency_factor;
      const double high = scaling.high_frequency_factor;
      const double kept = turns >= high ? 1 : turns <= low ? 0 : (turns - low) / (high - low);
      frequency *= kept + (1 - kept) / scaling.factor;
    }
    frequencies.push_back(frequency);
  }
  RopeTable table;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cosine.push_back(static_cast<float>(std::cos(angle)));
      table.sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

StepBytes step_bytes(const ModelConfig& config, std::int64_t batch, std::int64_t old_tokens) {
  const std::int64_t products =
      config.hidden * (config.qkv_columns() + config.query_columns() + 3 * config.intermediate);
  const std::int64_t norms = 2 * config.hidden + (config.query_norm ? 2 * config.head_dim : 0);
  StepBytes bytes;
  bytes.weights =
      2 * (config.layers * (products + norms) + config.hidden + config.vocabulary * config.hidden);
  bytes.embedding = 2 * batch * config.hidden;
  bytes.cache = 2 * config.layers * 2 * config.kv_columns() * (old_tokens + batch);
  return bytes;
}

}  // namespace decode
