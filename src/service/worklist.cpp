#include "service/worklist.h"

#include <string>
#include <utility>

#include "support/json.h"
#include "support/text.h"

namespace kernwright {
namespace {

Error at(std::string_view file, const JsonNode& node, std::string_view message) {
  return {ErrorCode::invalid_argument, concat(file, ":", node.line, ": ", message)};
}

Result<Problem> parse_object(const JsonNode& node, std::string_view file) {
  std::string operation;
  Problem::Dims dims;
  Problem::Flags flags;
  for (const auto& [name, value] : *node.object()) {
    if (name == "operation" && value.string()) {
      operation = *value.string();
    } else if (name == "dims" && value.object()) {
      for (const auto& [dim, size] : *value.object()) {
        if (!size.integer()) {
          return at(file, size, concat("dim ", dim, " must be an integer, is ", size.kind()));
        }
        dims.emplace_back(dim, *size.integer());
      }
    } else if (name == "flags" && value.object()) {
      for (const auto& [flag, choice] : *value.object()) {
        if (!choice.string()) {
          return at(file, choice, concat("flag ", flag, " must be a string, is ", choice.kind()));
        }
        flags.emplace_back(flag, *choice.string());
      }
    } else {
      return at(file, value,
                concat("unexpected \"", name, "\" (", value.kind(),
                       "); a problem has operation (string), dims (object) and flags (object)"));
    }
  }
  if (operation.empty()) return at(file, node, "the problem names no operation");
  return Problem::make(std::move(operation), std::move(dims), std::move(flags));
}

}  // namespace

Result<std::vector<Problem>> parse_worklist(std::string_view text, std::string_view file) {
  Result<JsonNode> root = parse_json(text, file);
  if (!root) return std::move(root).error();
  const JsonNode* list = root->find("problems");
  if (!root->object() || root->object()->size() != 1 || !list || !list->array()) {
    return at(file, *root, "a worklist is an object with one member, problems: an array");
  }
  std::vector<Problem> problems;
  for (const JsonNode& node : *list->array()) {
    if (!node.string() && !node.object()) {
      return at(file, node, concat("a problem is a string or an object, is ", node.kind()));
    }
    Result<Problem> problem =
        node.string() ? Problem::parse(*node.string()) : parse_object(node, file);
    if (!problem) return at(file, node, problem.error().message);
    problems.push_back(*std::move(problem));
  }
  return problems;
}

}  // namespace kernwright
