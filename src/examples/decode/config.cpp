#include "config.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "input.h"

namespace decode {
namespace {

using nlohmann::json;

constexpr double kPi = 3.14159265358979323846;
/// So large that products of two sizes and a small factor fit into 64 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

/// The fields of one JSON object. Remembers the first field with a wrong value.
class Fields {
 public:
  Fields(const json& object, std::string file, std::optional<kw::Error>& error)
      : object_(object), file_(std::move(file)), error_(error) {}

  /// Returns a size from 1; `fallback` if there is none. A `fallback` of 0 forbids that.
  std::int64_t size(const char* name, std::int64_t fallback = 0) const {
    const json* value = find(name, fallback == 0);
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || *value < 1 || *value > kLargestSize) {
      refuse(name, shown(*value) + " is no whole number from 1 to " + std::to_string(kLargestSize));
      return 1;
    }
    return value->get<std::int64_t>();
  }

  /// Returns a number above 0; `fallback` if there is none. A `fallback` of 0 forbids that.
  double number(const char* name, double fallback = 0) const {
    const json* value = find(name, fallback == 0);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !(value->get<double>() > 0)) {
      refuse(name, shown(*value) + " is no number above 0");
      return 1;
    }
    return value->get<double>();
  }

  bool flag(const char* name) const {
    const json* value = find(name, false);
    if (value != nullptr && !value->is_boolean()) {
      refuse(name, shown(*value) + " is neither true nor false");
    }
    return value != nullptr && *value == true;
  }

  /// Refuses a field that is there and is not `expected`.
  void only(const char* name, const json& expected) const {
    const json* value = find(name, false);
    if (value != nullptr && *value != expected) {
      refuse(name, shown(*value) + ", only " + shown(expected) + " is decoded");
    }
  }

  /// Returns the field; null if it is missing or null.
  const json* find(const char* name, bool required) const {
    const auto found = object_.find(name);
    if (found != object_.end() && !found->is_null()) return &*found;
    if (required) refuse(name, "missing");
    return nullptr;
  }

  void refuse(const char* name, const std::string& why) const {
    if (!error_) error_ = {kw::ErrorCode::invalid_argument, file_ + ": " + name + ": " + why};
  }

 private:
  const json& object_;
  std::string file_;
  std::optional<kw::Error>& error_;
};

/// Reads the parameters of the rotations. Older files have rope_theta and rope_scaling, newer ones
/// both in rope_parameters.
void read_rope(const Fields& fields, const std::string& file, std::optional<kw::Error>& error,
               ModelConfig& config) {
  config.rope_theta = fields.number("rope_theta", 10000);
  const json* scaling = fields.find("rope_parameters", false);
  const bool parameters = scaling != nullptr;
  const char* where = parameters ? "rope_parameters" : "rope_scaling";
  if (!parameters) scaling = fields.find("rope_scaling", false);
  if (scaling == nullptr) return;
  if (!scaling->is_object()) return fields.refuse(where, shown(*scaling) + " is not an object");
  const Fields inner(*scaling, file + ": " + where, error);
  if (parameters) config.rope_theta = inner.number("rope_theta", config.rope_theta);
  const json* type = inner.find("rope_type", false);
  if (type == nullptr) type = inner.find("type", !parameters);
  if (type == nullptr || *type == "default") return;
  if (*type != "llama3") {
    return inner.refuse("rope_type",
                        shown(*type) + ", only \"llama3\" and \"default\" are decoded");
  }
  RopeScaling read;
  read.factor = inner.number("factor");
  read.low_frequency_factor = inner.number("low_freq_factor");
  read.high_frequency_factor = inner.number("high_freq_factor");
  read.original_positions = inner.number("original_max_position_embeddings");
  if (!(read.low_frequency_factor < read.high_frequency_factor)) {
    inner.refuse("low_freq_factor", std::to_string(read.low_frequency_factor) +
                                        " is not below high_freq_factor " +
                                        std::to_string(read.high_frequency_factor));
  }
  config.rope_scaling = read;
}

ModelConfig read_fields(const json& document, const std::string& file,
                        std::optional<kw::Error>& error) {
  const Fields fields(document, file, error);
  ModelConfig config;
  const json* type = fields.find("model_type", true);
  if (type == nullptr) return config;
  const bool qwen3 = *type == "qwen3";
  if (!qwen3 && *type != "llama") {
    fields.refuse("model_type", shown(*type) + ", only \"llama\" and \"qwen3\" are decoded");
    return config;
  }
  config.model_type = type->get<std::string>();
  config.query_norm = qwen3;
  config.hidden = fields.size("hidden_size");
  config.layers = fields.size("num_hidden_layers");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.size("num_key_value_heads", config.heads);
  config.intermediate = fields.size("intermediate_size");
  config.vocabulary = fields.size("vocab_size");
  config.positions = fields.size("max_position_embeddings", kLargestSize);
  config.norm_epsilon = fields.number("rms_norm_eps", 1e-6);
  config.tied_head = fields.flag("tie_word_embeddings");
  if (error) return config;
  if (config.heads % config.kv_heads != 0) {
    fields.refuse("num_attention_heads", std::to_string(config.heads) +
                                             " is no multiple of num_key_value_heads " +
                                             std::to_string(config.kv_heads));
  }
  // A Qwen3 has heads of 128 elements if its file does not say otherwise.
  config.head_dim = fields.size("head_dim", qwen3 ? 128 : config.hidden / config.heads);
  if (!qwen3 && fields.find("head_dim", false) == nullptr && config.hidden % config.heads != 0) {
    fields.refuse("hidden_size", std::to_string(config.hidden) +
                                     " is no multiple of num_attention_heads " +
                                     std::to_string(config.heads) + ", and head_dim is missing");
  }
  if (config.head_dim % 8 != 0) {
    fields.refuse("head_dim", std::to_string(config.head_dim) + " is no multiple of 8");
  }
  fields.only("hidden_act", "silu");
  fields.only("attention_bias", false);
  fields.only("mlp_bias", false);
  fields.only("partial_rotary_factor", 1.0);
  fields.only("quantization_config", nullptr);
  // A Llama has no window, whatever its file says; a Qwen3 in the layers from max_window_layers on.
  if (qwen3 && fields.flag("use_sliding_window") &&
      fields.size("max_window_layers", 28) < config.layers) {
    config.window = fields.size("sliding_window", 4096);
  }
  read_rope(fields, file, error, config);
  return config;
}

}  // namespace

kw::Result<ModelConfig> parse_config(std::string_view text, const std::string& file) {
  const json document = parse_json(text);
  if (!document.is_object()) {
    return kw::Error{kw::ErrorCode::invalid_argument, file + ": " + kNoObject};
  }
  std::optional<kw::Error> error;
  ModelConfig config = read_fields(document, file, error);
  if (error) return *error;
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
