#include "models/model_worklist.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "model/expression/json_reader.h"
#include "models/config_values.h"
#include "models/model_type.h"
#include "models/quantization.h"
#include "support/names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// So many that the rows of all their heads still fit into 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

/// Holds a config and what reads it, which refer to each other.
struct Config {
  JsonNode root;
  const JsonNode* text = nullptr;
  ModelType type;
  Quantization quantization;
  std::optional<ConfigValues> values;
};

/// Reads a config and finds what it is of. Values are of one GPU.
Result<std::unique_ptr<Config>> read_config(std::string_view config, std::string_view file,
                                            const Catalog& catalog) {
  auto read = std::make_unique<Config>();
  KW_ASSIGN(read->root, parse_json(config, file));
  const JsonNode& root = read->root;
  if (!root.object()) {
    return Error{ErrorCode::invalid_argument,
                 concat(file, ":", root.line, ": a config is an object, is ", root.kind())};
  }
  const JsonNode* nested = root.find("text_config");
  if (nested != nullptr && !nested->object() && !nested->is_null()) {
    return Error{
        ErrorCode::invalid_argument,
        concat(file, ":", nested->line, ": text_config must be an object, is ", nested->kind())};
  }
  const bool within = nested != nullptr && nested->object();
  read->text = within ? nested : &root;
  KW_ASSIGN(read->type, find_model_type(root, *read->text, file, catalog));
  KW_ASSIGN(read->quantization, read_quantization(root, *read->text, file));
  ConfigValues& values = read->values.emplace(read->type, *read->text, file);
  values.give("nested", within ? 1 : 0);
  values.give("gpus", 1);
  values.give("plain", read->quantization.weights == Weights::plain);
  values.give("fp8_tensors", read->quantization.weights == Weights::fp8_tensors);
  values.give("fp8_blocks", read->quantization.weights == Weights::fp8_blocks);
  values.give("by_rows", read->quantization.weights == Weights::int8_rows ||
                             read->quantization.weights == Weights::fp8_rows);
  values.give("integers", read->quantization.weights == Weights::integers);
  values.give("mxfp4_experts", read->quantization.mxfp4_experts);
  values.give("weight_bits", read->quantization.bits);
  values.give("weight_group", read->quantization.group);
  values.give("weight_zeros", read->quantization.has_zeros);
  values.give_text("quantization", read->quantization.text);
  values.give_text("type", read->type.name);
  return read;
}

/// How both operands of the layers' products are kept: their dtype, none for the model's own, and
/// the words of matmul and of what quantises its operands.
struct Operands {
  std::optional<DType> codes;
  std::string scaling = "none";
  std::string quantize = "none";
};

Operands operands_of(Weights weights) {
  switch (weights) {
    case Weights::fp8_tensors:
      return {DType::fp8_e4m3, "alpha", "none"};
    case Weights::fp8_blocks:
      return {DType::fp8_e4m3, "block", "block"};
    case Weights::int8_rows:
      return {DType::int8, "row", "row"};
    case Weights::fp8_rows:
      return {DType::fp8_e4m3, "row", "row"};
    case Weights::plain:
    case Weights::integers:
    case Weights::other:
      return {};
  }
  return {};
}

/// Collects what one GPU runs of a model, for all token counts.
class Collector {
 public:
  Collector(Config& config, const ModelUse& use, const Catalog& catalog, std::string_view file)
      : type_(config.type), values_(*config.values), use_(use), catalog_(catalog), file_(file) {
    const Quantization& quantization = config.quantization;
    Weights weights = quantization.weights;
    // fp8 is the dtype of weights; results and norms have 16 bits.
    if (use_.dtype == DType::fp8_e4m3) {
      use_.dtype = DType::bf16;
      if (weights == Weights::plain) {
        weights = Weights::fp8_tensors;
        values_.give("plain", 0);
        values_.give("fp8_tensors", 1);
      }
    }
    values_.give("gpus", use_.tensor_parallel);
    values_.give_text("dtype", std::string(to_string(use_.dtype)));
    const Operands operands = operands_of(weights);
    values_.give_text("codes", std::string(to_string(operands.codes.value_or(use_.dtype))));
    values_.give_text("scaling", operands.scaling);
    values_.give_text("quantize", operands.quantize);
    values_.give_text("scale", scale_of(*config.text));
    list_.notes = quantization.notes;
  }

  Result<ModelWorklist> collect() {
    for (const ModelLine& line : type_.lines) KW_TRY(add(line, 0));
    if (is_full()) {
      return Error{
          ErrorCode::invalid_argument,
          concat(file_, ": ", use_.tokens.size(), " token counts and ", use_.contexts.size(),
                 " contexts give more than ", kMostProblems, " problems, the most of a worklist")};
    }
    list_problems();
    if (const std::string& taken = values_.defaults(); !taken.empty()) {
      note(concat("not in the config, and taken from transformers' defaults of ", type_.name, ": ",
                  taken));
    }
    return std::move(list_);
  }

 private:
  /// Returns the dtype of scales: the checkpoint's own if the config says it.
  std::string scale_of(const JsonNode& text) const {
    for (const std::string_view name : {"dtype", "torch_dtype"}) {
      const JsonNode* given = text.find(name);
      if (given && given->string() && *given->string() == "float16") return "fp16";
      if (given && given->string() && *given->string() == "bfloat16") return "bf16";
    }
    return std::string(to_string(use_.dtype));
  }

  /// Adds the line for all values of its loops from `loop` on.
  Result<void> add(const ModelLine& line, std::size_t loop) {
    if (is_full()) return {};
    if (loop == line.loops.size()) return add_once(line);
    const auto& [name, count] = line.loops[loop];
    const std::vector<std::int64_t>& given = name == "tokens" ? use_.tokens : use_.contexts;
    const std::int64_t times = count > 0 ? count : static_cast<std::int64_t>(given.size());
    for (std::int64_t i = 0; i < times && !is_full(); ++i) {
      values_.give(name, count > 0 ? i : given[static_cast<std::size_t>(i)]);
      KW_TRY(add(line, loop + 1));
    }
    return {};
  }

  Result<void> add_once(const ModelLine& line) {
    for (const Expression& condition : line.conditions) {
      KW_ASSIGN(const std::int64_t holds, values_.evaluate(condition));
      if (holds == 0) return {};
    }
    for (const ModelLine& each : line.lines) KW_TRY(add(each, 0));
    if (!line.error.empty()) {
      KW_ASSIGN(const std::string error, values_.fill(line.error));
      return Error{ErrorCode::invalid_argument, concat(file_, ": ", error)};
    }
    KW_ASSIGN(std::string text, values_.fill(line.note));
    if (!text.empty()) note(std::move(text));
    if (!line.operation.empty()) KW_TRY(ask(line));
    return {};
  }

  Result<void> ask(const ModelLine& line) {
    KW_ASSIGN(Problem whole, problem_of(line, /*with_optional=*/true));
    const bool may_be_less = std::ranges::any_of(line.words, &ProblemWord::optional);
    if (may_be_less && !is_possible(whole)) {
      KW_ASSIGN(whole, problem_of(line, /*with_optional=*/false));
    }
    asked_.push_back(std::move(whole));
    return {};
  }

  /// Makes a problem. One that names no dtype has the dtype of the model, if its operation has any.
  Result<Problem> problem_of(const ModelLine& line, bool with_optional) {
    Problem::Dims dims;
    Problem::Flags flags;
    KW_ASSIGN(const Operation* const operation, catalog_.operation(line.operation));
    bool has_dtype = find_named(operation->type_variables, "dtype") == nullptr;
    for (const ProblemWord& word : line.words) {
      if (word.optional && !with_optional) continue;
      has_dtype = has_dtype || word.name == "dtype";
      if (word.size) {
        KW_ASSIGN(const std::int64_t size, values_.evaluate(*word.size));
        dims.emplace_back(word.name, size);
      } else {
        KW_ASSIGN(std::string value, value_of(word));
        flags.emplace_back(word.name, std::move(value));
      }
    }
    if (!has_dtype) flags.emplace_back("dtype", to_string(use_.dtype));
    return Problem::make(line.operation, std::move(dims), std::move(flags));
  }

  Result<std::string> value_of(const ProblemWord& word) {
    for (const auto& [when, value] : word.cases) {
      if (!when) return values_.fill(value);
      KW_ASSIGN(const std::int64_t holds, values_.evaluate(*when));
      if (holds != 0) return values_.fill(value);
    }
    return std::string();
  }

  bool is_possible(const Problem& problem) const {
    const Result<const Operation*> found = catalog_.operation(problem.operation());
    return found && (*found)->normalize(problem);
  }

  void note(std::string text) {
    if (std::ranges::find(list_.notes, text) == list_.notes.end()) {
      list_.notes.push_back(std::move(text));
    }
  }

  bool is_full() const { return asked_.size() > kMostProblems; }

  void list_problems() {
    std::set<std::string> known;
    for (const Problem& problem : asked_) {
      const Result<const Operation*> operation = catalog_.operation(problem.operation());
      if (!operation) {
        note(operation.error().message);
        continue;
      }
      Result<Problem> normalized = (*operation)->normalize(problem);
      if (!normalized) {
        note(concat("what cannot be is left out, ", normalized.error().message));
      } else if (known.insert(normalized->text()).second) {
        list_.problems.push_back(*std::move(normalized));
      }
    }
  }

  const ModelType& type_;
  ConfigValues& values_;
  ModelUse use_;
  const Catalog& catalog_;
  std::string_view file_;
  std::vector<Problem> asked_;
  ModelWorklist list_;
};

Result<void> check_sizes(const std::vector<std::int64_t>& sizes, std::string_view what) {
  for (const std::int64_t tokens : sizes) {
    if (tokens < 1 || tokens > kMostTokens) {
      return Error{ErrorCode::invalid_argument, concat(what, " of ", tokens, " tokens: from 1 to ",
                                                       kMostTokens, " are possible")};
    }
  }
  return {};
}

}  // namespace

Result<ModelWorklist> model_worklist(std::string_view config, std::string_view file,
                                     const ModelUse& use, const Catalog& catalog) {
  KW_TRY(check_sizes(use.tokens, "a step"));
  KW_TRY(check_sizes(use.contexts, "a context"));
  KW_ASSIGN(const std::unique_ptr<Config> read, read_config(config, file, catalog));
  return Collector(*read, use, catalog, file).collect();
}

Result<ModelValues> model_values(std::string_view config, std::string_view file,
                                 const std::vector<std::string>& names, const Catalog& catalog) {
  KW_ASSIGN(const std::unique_ptr<Config> read, read_config(config, file, catalog));
  ModelValues values;
  for (const std::string& name : names) {
    KW_ASSIGN(values[name], read->values->value(name));
  }
  return values;
}

Result<ModelValues> read_model(std::string_view config, const std::string& file,
                               const std::vector<std::string>& names) {
  KW_ASSIGN(const std::shared_ptr<const Catalog> catalog, Catalog::load({}));
  return model_values(config, file, names, *catalog);
}

}  // namespace kernwright
