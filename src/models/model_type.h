#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/expression/expression.h"
#include "support/json.h"
#include <kernwright/result.h>

namespace kernwright {

/// Names the kinds of fields. The value of a list is the number of its elements that count.
enum class FieldKind { size, count, flag, number, word, list };

/// Says which field of a config has a value, and what it is if it is missing.
struct ModelField {
  std::vector<std::string> names;  ///< the first that the config has counts
  FieldKind kind = FieldKind::size;
  std::optional<JsonNode> fallback;          ///< the default of transformers
  std::optional<Expression> none;            ///< for null, or if there is no fallback
  std::optional<Expression> times;           ///< the factor of a number, rounded down
  std::optional<Expression> counts;          ///< if `element` of a list counts
  std::vector<std::string> elements;         ///< of a list; none: integers
  std::map<std::string, std::string> words;  ///< our words by others
};

using ModelValue = std::variant<Expression, ModelField>;

/// Holds a word of a problem: a dim, or the values of a flag with their conditions. The last value
/// has no condition. An optional word is left out if the operation refuses the problem with it.
struct ProblemWord {
  struct Case {
    std::optional<Expression> when;
    std::string value;
  };
  std::string name;
  std::optional<Expression> size;
  std::vector<Case> cases;
  bool optional = false;
};

/// Holds a line of a model's list: a problem, a note, an error or more lines. It counts if all
/// conditions hold, once for each value of its loops.
struct ModelLine {
  struct Loop {
    std::string name;
    std::int64_t count = 0;  ///< of values from 0 on; 0: the caller's values
  };
  std::vector<Loop> loops;
  std::vector<Expression> conditions;
  std::vector<ModelLine> lines;
  std::string operation;  ///< of a problem
  std::vector<ProblemWord> words;
  std::string note;
  std::string error;
};

/// Holds what a file in `models/` says of a type, merged with the files that it extends.
struct ModelType {
  std::string name;
  std::map<std::string, ModelValue, std::less<>> values;
  std::vector<ModelLine> lines;
};

// The names that every type has besides its own.
inline constexpr std::string_view kGivenNames[] = {
    "gpus",     "nested",      "plain",        "fp8_tensors",  "fp8_blocks",   "by_rows",
    "integers", "weight_bits", "weight_group", "weight_zeros", "mxfp4_experts"};
inline constexpr std::string_view kGivenTexts[] = {"dtype",        "codes", "scaling", "quantize",
                                                   "quantization", "scale", "type"};

/// Reads a file of `catalog.models()`. Errors: `invalid_argument` naming file, line and field.
Result<ModelType> parse_model_type(const Fragment& file, const Catalog& catalog);

/// Finds the type of a model by its model_type, or else by its architecture. `root` is its config,
/// and `text` the object with its fields: `root` or the text_config in it. Errors:
/// `invalid_argument` naming `file` and line, and for an unknown type all known ones.
Result<ModelType> find_model_type(const JsonNode& root, const JsonNode& text, std::string_view file,
                                  const Catalog& catalog);

/// Calls `visit` with the parts of a text such as "{heads} heads": each name in braces with true,
/// and the rest with false. Returns false if a brace is not closed.
template <typename Visit>
bool visit_parts(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    visit(text.substr(0, open), false);
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) return false;
    visit(text.substr(open + 1, close - open - 1), true);
    text.remove_prefix(close + 1);
  }
  return true;
}

}  // namespace kernwright
