#include "service/model_worklist.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "support/json.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The sizes that a config gives.
struct Model {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  std::string activation;
  bool rms_norm = false;  ///< and with it a gated feed-forward: so all models that have either
  bool experts = false;
};

class ConfigReader {
 public:
  ConfigReader(const JsonNode& root, std::string_view file) : root_(root), file_(file) {}

  std::optional<std::int64_t> find(std::string_view name) {
    const JsonNode* node = root_.find(name);
    if (node == nullptr || std::holds_alternative<std::nullptr_t>(node->value)) return {};
    if (node->integer() && *node->integer() >= 1) return *node->integer();
    fail(node->line, concat(name, " must be an integer of 1 or more"));
    return {};
  }
  std::int64_t require(std::string_view name) {
    const std::optional<std::int64_t> value = find(name);
    if (!value) fail(root_.line, concat("a model has ", name, ", and this one does not say it"));
    return value.value_or(1);
  }
  bool has(std::string_view name) const { return root_.find(name) != nullptr; }
  std::string text(std::string_view name) const {
    const JsonNode* node = root_.find(name);
    return node != nullptr && node->string() ? *node->string() : std::string();
  }
  const std::string& error() const { return error_; }

 private:
  void fail(int line, std::string_view what) {
    if (error_.empty()) error_ = concat(file_, ":", line, ": ", what);
  }

  const JsonNode& root_;
  std::string_view file_;
  std::string error_;
};

Result<Model> read_model(std::string_view config, std::string_view file) {
  const Result<JsonNode> root = parse_json(config, file);
  if (!root) return root.error();
  // Models that see and hear keep the language model's sizes one level down.
  const JsonNode* text = root->find("text_config");
  ConfigReader reader(text != nullptr && text->object() ? *text : *root, file);
  Model model;
  model.hidden = reader.require("hidden_size");
  model.heads = reader.require("num_attention_heads");
  model.kv_heads = reader.find("num_key_value_heads").value_or(model.heads);
  model.head_dim =
      reader.find("head_dim").value_or(std::max<std::int64_t>(model.hidden / model.heads, 1));
  model.intermediate = reader.require("intermediate_size");
  model.vocabulary = reader.require("vocab_size");
  model.activation = reader.text("hidden_act");
  if (model.activation.empty()) model.activation = reader.text("hidden_activation");
  model.rms_norm = reader.has("rms_norm_eps");
  model.experts = reader.has("num_experts") || reader.has("num_local_experts") ||
                  reader.has("n_routed_experts");
  if (!reader.error().empty()) return Error{ErrorCode::invalid_argument, reader.error()};
  return model;
}

/// Our name of an activation as configs spell it; nothing where we have none.
std::optional<std::string> gate_of(std::string_view activation) {
  if (activation == "silu" || activation == "swish") return "silu";
  if (activation == "gelu_pytorch_tanh" || activation == "gelu_new" || activation == "gelu_fast") {
    return "gelu_tanh";
  }
  if (activation == "gelu") return "gelu_erf";
  if (activation == "relu") return "relu";
  return std::nullopt;
}

/// Collects problems for all token counts.
class Collector {
 public:
  Collector(const ModelUse& use, const Catalog& catalog) : use_(use), catalog_(catalog) {}

  void matmul(std::int64_t n, std::int64_t k, const Problem::Flags& flags = {}) {
    for (const std::int64_t m : use_.tokens) {
      Problem problem = kernwright::matmul({m, n, k}, use_.dtype);
      for (const auto& [name, value] : flags) problem = problem.with(name, value);
      add(problem);
    }
  }
  void rows(const std::string& operation, std::int64_t columns, Problem::Flags flags = {}) {
    flags.emplace_back("dtype", std::string(to_string(use_.dtype)));
    for (const std::int64_t rows : use_.tokens) {
      add(Problem::make(operation, {{"rows", rows}, {"columns", columns}}, flags));
    }
  }
  void note(std::string text) {
    if (std::find(list_.notes.begin(), list_.notes.end(), text) == list_.notes.end()) {
      list_.notes.push_back(std::move(text));
    }
  }
  ModelWorklist take() { return std::move(list_); }

 private:
  void add(const Problem& problem) {
    const Result<const Operation*> operation = catalog_.operation(problem.operation());
    if (!operation) {
      note(concat("there is no operation ", problem.operation()));
      return;
    }
    Result<Problem> normalized = (*operation)->normalize(problem);
    if (!normalized) {
      note(concat(problem.text(), " is left out: ", normalized.error().message));
    } else if (known_.insert(normalized->text()).second) {
      list_.problems.push_back(*std::move(normalized));
    }
  }

  const ModelUse& use_;
  const Catalog& catalog_;
  ModelWorklist list_;
  std::set<std::string> known_;
};

Result<void> check_split(const Model& model, std::int64_t parts, std::string_view file) {
  const auto divides = [parts](std::int64_t size) { return size % parts == 0; };
  const auto refuse = [&](std::string_view what, std::int64_t size) {
    return Error{ErrorCode::invalid_argument,
                 concat(file, ": ", what, " is ", size, ", which ", parts, " GPUs do not divide")};
  };
  if (!divides(model.heads)) return refuse("num_attention_heads", model.heads);
  if (!divides(model.intermediate)) return refuse("intermediate_size", model.intermediate);
  if (!divides(model.kv_heads) && parts % model.kv_heads != 0) {
    return refuse("num_key_value_heads", model.kv_heads);
  }
  return {};
}

}  // namespace

Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog) {
  const Result<Model> read = read_model(config, file);
  if (!read) return read.error();
  const Model& model = *read;
  const std::int64_t parts = use.tensor_parallel;
  if (Result<void> split = check_split(model, parts, file); !split) return split.error();

  const std::int64_t heads = model.heads / parts;
  const std::int64_t kv_heads = std::max<std::int64_t>(model.kv_heads / parts, 1);
  const std::int64_t intermediate = model.intermediate / parts;
  Collector collector(use, catalog);
  collector.matmul((heads + 2 * kv_heads) * model.head_dim, model.hidden);
  collector.matmul(model.hidden, heads * model.head_dim);
  if (model.experts) {
    collector.note("the products of experts are grouped: they are no matmul, and left out");
  } else {
    collector.matmul((model.rms_norm ? 2 : 1) * intermediate, model.hidden);
    collector.matmul(model.hidden, intermediate);
    if (const auto gate = gate_of(model.activation); gate && model.rms_norm) {
      // Engines ask for the first half in one kernel, or for the bare product and its gating.
      if (*gate != "relu") {  // products have no such activation
        collector.matmul(intermediate, model.hidden, {{"activation", *gate}, {"gate", "stacked"}});
      }
      collector.rows("gated_activation", intermediate,
                     {{"activation", *gate}, {"layout", "packed"}});
    } else {
      collector.note(concat("the activation \"", model.activation, "\" is left out"));
    }
  }
  collector.matmul((model.vocabulary + parts - 1) / parts, model.hidden);
  collector.rows(model.rms_norm ? "rmsnorm" : "layernorm", model.hidden);
  collector.note("attention itself is left out");
  return collector.take();
}

}  // namespace kernwright
