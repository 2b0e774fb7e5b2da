#include "models/quantization.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::int64_t kBlock = 128;  // the block of matmul with scaling=block, in both directions

std::string text_of(const JsonNode& node, std::string_view name) {
  const JsonNode* found = node.find(name);
  return found && found->string() ? *found->string() : std::string();
}

bool is_true(const JsonNode& node, std::string_view name) {
  const JsonNode* found = node.find(name);
  return found && found->boolean() && *found->boolean();
}

/// A side of a group of compressed-tensors, weights or activations.
struct Side {
  std::string_view type;
  std::vector<std::string_view> strategies;
  bool dynamic = false;
};

/// Returns whether weights or activations have 8 bits, without zero points, and are as said.
bool is_as(const JsonNode* node, const Side& side) {
  if (node == nullptr || !node->object()) return false;
  const JsonNode* bits = node->find("num_bits");
  const JsonNode* symmetric = node->find("symmetric");
  return bits && bits->integer() && *bits->integer() == 8 && text_of(*node, "type") == side.type &&
         std::ranges::find(side.strategies, text_of(*node, "strategy")) != side.strategies.end() &&
         is_true(*node, "dynamic") == side.dynamic &&
         !(symmetric && symmetric->boolean() && !*symmetric->boolean());
}

/// Returns the sizes of the blocks that have a scale each, {0, 0} if they are not said.
std::pair<std::int64_t, std::int64_t> block_of(const JsonNode* sizes) {
  const JsonNode::Array* list = sizes ? sizes->array() : nullptr;
  if (!list || list->size() != 2 || !list->at(0).integer() || !list->at(1).integer()) return {};
  return {*list->at(0).integer(), *list->at(1).integer()};
}

std::int64_t integer_of(const JsonNode& node, std::string_view name, std::int64_t fallback) {
  const JsonNode* found = node.find(name);
  return found && found->integer() ? *found->integer() : fallback;
}

/// Returns integers of so many bits in such groups, -1 for all columns of a row, as far as
/// quantized_matmul takes them.
Quantization integers(const std::string& method, std::int64_t bits, std::int64_t group,
                      bool has_zeros) {
  const bool known = (bits == 4 || bits == 8) && (group == -1 || (group > 0 && group % 16 == 0));
  return {.weights = known ? Weights::integers : Weights::other,
          .bits = bits,
          .group = std::max<std::int64_t>(group, 0),
          .has_zeros = has_zeros,
          .text = concat(method, ", ", bits, " bits, groups of ", group),
          .notes = {}};
}

/// Returns the weights of a group of compressed-tensors if they alone are quantised, to integers.
std::optional<Quantization> read_packed(const std::string& method, const JsonNode& group) {
  const JsonNode* weights = group.find("weights");
  const JsonNode* activations = group.find("input_activations");
  if (!weights || !weights->object() || text_of(*weights, "type") != "int" ||
      (activations && !activations->is_null())) {
    return std::nullopt;
  }
  const std::string strategy = text_of(*weights, "strategy");
  if (strategy != "group" && strategy != "channel") return std::nullopt;
  const JsonNode* symmetric = weights->find("symmetric");
  return integers(method, integer_of(*weights, "num_bits", 0),
                  strategy == "channel" ? -1 : integer_of(*weights, "group_size", 0),
                  symmetric && symmetric->boolean() && !*symmetric->boolean());
}

/// Reads GPTQ and AWQ. Their scales have groups of 128 columns if nothing is said, as transformers
/// takes it.
Quantization read_gptq_or_awq(const JsonNode& node, const std::string& method) {
  const bool awq = method == "awq";
  const JsonNode* zeros = node.find(awq ? "zero_point" : "sym");
  const bool said = zeros && zeros->boolean();
  const bool has_zeros = awq ? !said || *zeros->boolean() : said && !*zeros->boolean();
  const std::int64_t bits = integer_of(node, "bits", 4);
  const std::string version = text_of(node, "version");
  const std::string format = text_of(node, "checkpoint_format");
  const bool known = awq ? bits == 4 && (version.empty() || version == "gemm" || version == "GEMM")
                         : format.empty() || format == "gptq" || format == "gptq_v2";
  if (!known) {
    return {.weights = Weights::other,
            .text = concat(method, ", ", bits, " bits", version.empty() ? "" : ", ", version,
                           format.empty() ? "" : ", ", format)};
  }
  Quantization read = integers(method, bits, integer_of(node, "group_size", 128), has_zeros);
  if (const JsonNode* dynamic = node.find("dynamic");
      dynamic && dynamic->object() && !dynamic->object()->empty()) {
    read.notes.emplace_back(
        "quantization_config has rules for some modules, dynamic: they are treated as the others");
  }
  return read;
}

/// Returns how weights and activations are kept if both have 8 bits.
std::optional<Quantization> read_eight_bits(const std::string& method, const JsonNode* groups) {
  if (!groups || !groups->object() || groups->object()->empty()) return std::nullopt;
  const auto all = [&](const Side& weights, const Side& activations) {
    return std::ranges::all_of(*groups->object(), [&](const auto& group) {
      return is_as(group.second.find("weights"), weights) &&
             is_as(group.second.find("input_activations"), activations);
    });
  };
  const auto found = [&](Weights weights, std::string_view text) {
    return Quantization{.weights = weights, .text = concat(method, ", ", text)};
  };
  if (all({"float", {"tensor", ""}}, {"float", {"tensor", ""}})) {
    return found(Weights::fp8_tensors, "fp8 with a scale a tensor");
  }
  for (const auto& [type, weights, text] :
       {std::tuple{"int", Weights::int8_rows, "int8 with a scale a row"},
        std::tuple{"float", Weights::fp8_rows, "fp8 with a scale a row"}}) {
    if (all({type, {"channel", "tensor", ""}}, {type, {"token"}, true}))
      return found(weights, text);
  }
  const bool blocks = all({"float", {"block"}}, {"float", {"group"}, true});
  if (blocks && std::ranges::all_of(*groups->object(), [](const auto& group) {
        return block_of(group.second.find("weights")->find("block_structure")) ==
                   std::pair{kBlock, kBlock} &&
               integer_of(*group.second.find("input_activations"), "group_size", 0) == kBlock;
      })) {
    return found(Weights::fp8_blocks, "fp8 with a scale a block");
  }
  return std::nullopt;
}

Quantization read_compressed_tensors(const JsonNode& node, const std::string& method) {
  const JsonNode* groups = node.find("config_groups");
  if (auto eight = read_eight_bits(method, groups)) return *eight;
  const std::string format = text_of(node, "format");
  if (format == "pack-quantized" && groups && groups->object() && groups->object()->size() == 1) {
    if (auto packed = read_packed(method, groups->object()->begin()->second)) return *packed;
  }
  return {.weights = Weights::other,
          .text = format.empty() ? method : concat(method, ", ", format)};
}

Quantization read_fp8(const JsonNode& node) {
  if (is_true(node, "dequantize")) return {};
  const bool fixed = text_of(node, "activation_scheme") == "static";
  const JsonNode* block = node.find("weight_block_size");
  // If nothing is said transformers takes blocks of 128 x 128. A scale of activations that is
  // fixed before is one of the whole tensor, and goes with such weights.
  if (block ? block->is_null() : fixed) {
    if (fixed) return {.weights = Weights::fp8_tensors, .text = "fp8 with a scale a tensor"};
    return {.weights = Weights::other, .text = "fp8, activations with scales of their own"};
  }
  const auto [rows, columns] = block ? block_of(block) : std::pair{kBlock, kBlock};
  if (rows == 0) return {.weights = Weights::other, .text = "fp8 with blocks of no known size"};
  const bool known = rows == kBlock && columns == kBlock && !fixed;
  return {.weights = known ? Weights::fp8_blocks : Weights::other,
          .text = concat("fp8 with a scale for each block of ", rows, " x ", columns)};
}

Quantization quantization_of(const JsonNode& node) {
  const std::string method = text_of(node, "quant_method");
  if (method == "fp8") return read_fp8(node);
  if (method == "compressed-tensors") return read_compressed_tensors(node, method);
  if (method == "modelopt" && text_of(node, "quant_algo") == "FP8") {
    return {.weights = Weights::fp8_tensors, .text = "modelopt, fp8 with a scale a tensor"};
  }
  if (method == "gptq" || method == "awq") return read_gptq_or_awq(node, method);
  if (method == "mxfp4") {
    return {.mxfp4_experts = !is_true(node, "dequantize"), .text = {}, .notes = {}};
  }
  std::string text = method.empty() ? "by no known method" : method;
  const JsonNode* bits = node.find("bits");
  if (bits && bits->integer()) text += concat(", ", *bits->integer(), " bits");
  if (is_true(node, "load_in_4bit")) text += ", 4 bits";
  if (is_true(node, "load_in_8bit")) text += ", 8 bits";
  return {.weights = Weights::other, .text = text};
}

/// Notes modules that stay as they are although others are quantised. The head and routers do
/// anyway.
void note_exceptions(const JsonNode& node, std::vector<std::string>& notes) {
  std::size_t count = 0;
  std::string first;
  for (const std::string_view name : {"modules_to_not_convert", "ignored_layers", "ignore"}) {
    const JsonNode* list = node.find(name);
    if (list == nullptr || !list->array()) continue;
    for (const JsonNode& module : *list->array()) {
      if (!module.string()) continue;
      const std::string& text = *module.string();
      const auto has = [&text](std::string_view part) {
        return text.find(part) != std::string::npos;
      };
      if (has("head") || has("embed") || has("router") || has("vision") || has("multi_modal") ||
          text.ends_with("gate") || text.ends_with("gate$")) {
        continue;
      }
      if (count++ == 0) first = text;
    }
  }
  if (count == 0) return;
  notes.push_back(concat("quantization_config leaves ", count, " modules as they are, such as ",
                         first, ": they are treated as the others of their kind"));
}

}  // namespace

Result<Quantization> read_quantization(const JsonNode& root, const JsonNode& text,
                                       std::string_view file) {
  constexpr std::string_view kName = "quantization_config";
  const JsonNode* node = root.find(kName);
  if (node == nullptr) node = text.find(kName);
  if (node == nullptr || node->is_null()) return Quantization{};
  if (!node->object()) {
    return Error{ErrorCode::invalid_argument, concat(file, ":", node->line, ": ", kName,
                                                     " must be an object, is ", node->kind())};
  }
  Quantization found = quantization_of(*node);
  if (found.weights != Weights::plain) note_exceptions(*node, found.notes);
  return found;
}

}  // namespace kernwright
