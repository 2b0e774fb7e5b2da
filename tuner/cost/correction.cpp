#include "tuner/cost/correction.h"

#include <utility>

#include "support/json.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/cost/embedded_correction.h"

namespace kernwright {
namespace {

/// Reads a correction; the first defect ends it.
class CorrectionReader {
 public:
  CorrectionReader(std::string_view file, const JsonNode& root) : file_(file), root_(root) {}

  Result<Correction> read() {
    const JsonNode* const sku = root_.find("sku");
    if (sku == nullptr || sku->string() == nullptr) return defect(root_, "no \"sku\"");
    KW_ASSIGN(const JsonNode::Array* names, array(root_, "terms"));
    for (const JsonNode& name : *names) {
      if (name.string() == nullptr) return defect(name, "a term is no name but ", name.kind());
      terms_.push_back(*name.string());
    }
    KW_ASSIGN(const JsonNode::Array* trees, array(root_, "trees"));
    std::vector<Correction::Tree> all;
    for (const JsonNode& node : *trees) {
      KW_ASSIGN(auto one, tree(node));
      all.push_back(std::move(one));
    }
    return Correction(*sku->string(), std::move(terms_), std::move(all));
  }

 private:
  template <typename... Parts>
  Error defect(const JsonNode& at, const Parts&... parts) const {
    return {ErrorCode::invalid_argument, concat(file_, ":", at.line, ": ", parts...)};
  }

  Result<const JsonNode::Array*> array(const JsonNode& of, std::string_view name) const {
    const JsonNode* const found = of.find(name);
    if (found == nullptr || found->array() == nullptr) return defect(of, "no list \"", name, '"');
    return found->array();
  }

  Result<Correction::Tree> tree(const JsonNode& json) const {
    if (json.array() == nullptr || json.array()->empty()) {
      return defect(json, "a tree is no list of nodes");
    }
    Correction::Tree nodes;
    for (const JsonNode& one : *json.array()) {
      KW_ASSIGN(const Correction::Node read,
                node(one, static_cast<int>(nodes.size()), static_cast<int>(json.array()->size())));
      nodes.push_back(read);
    }
    return nodes;
  }

  /// [value] is a leaf, [term, threshold, below, above] an inner node.
  Result<Correction::Node> node(const JsonNode& json, int place, int count) const {
    std::vector<double> numbers;
    if (json.array() != nullptr) {
      for (const JsonNode& one : *json.array()) {
        if (!one.number(numbers.emplace_back())) return defect(one, "no number: ", one.kind());
      }
    }
    Correction::Node node;
    if (numbers.size() == 1) {
      node.value = numbers[0];
      return node;
    }
    if (numbers.size() != 4) return defect(json, "a node has 1 or 4 numbers, not ", numbers.size());
    node.term = static_cast<int>(numbers[0]);
    node.threshold = numbers[1];
    node.below = static_cast<int>(numbers[2]);
    node.above = static_cast<int>(numbers[3]);
    if (node.term < 0 || node.term >= static_cast<int>(terms_.size())) {
      return defect(json, "term ", node.term, " of ", terms_.size());
    }
    for (const int next : {node.below, node.above}) {
      if (next <= place || next >= count) {
        return defect(json, "node ", place, " of ", count, " goes on at ", next);
      }
    }
    return node;
  }

  std::string file_;
  const JsonNode& root_;
  std::vector<std::string> terms_;
};

std::string number_text(double number) { return significant(number, 4); }

}  // namespace

Result<Correction> Correction::parse(std::string_view text, std::string_view file) {
  KW_ASSIGN(const JsonNode root, parse_json(text, file));
  return CorrectionReader(file, root).read();
}

std::string Correction::text() const {
  std::string text = concat("{\n  \"sku\": \"", sku_, "\",\n  \"terms\": [");
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    text += concat(i == 0 ? "" : ", ", '"', terms_[i], '"');
  }
  text += "],\n  \"trees\": [";
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    text += i == 0 ? "\n    [" : ",\n    [";
    for (std::size_t place = 0; place < trees_[i].size(); ++place) {
      const Node& node = trees_[i][place];
      if (place > 0) text += ", ";
      text += node.term == Node::kLeaf ? concat("[", number_text(node.value), "]")
                                       : concat("[", node.term, ", ", number_text(node.threshold),
                                                ", ", node.below, ", ", node.above, "]");
    }
    text += ']';
  }
  return text + "\n  ]\n}\n";
}

const Correction& Correction::built_in() {
  static const auto& correction = *new Correction([] {
    const EmbeddedFile& file = embedded_correction().front();
    Result<Correction> read = parse(file.content, file.path);
    // If it does not parse, nothing is corrected. The test, which parses it, fails for it.
    return read ? std::move(read).value() : Correction("", {}, {});
  }());
  return correction;
}

double value_of(const Correction::Tree& tree, std::span<const double> terms) {
  std::size_t place = 0;
  while (tree[place].term != Correction::Node::kLeaf) {
    const Correction::Node& node = tree[place];
    const bool below = terms[static_cast<std::size_t>(node.term)] <= node.threshold;
    place = static_cast<std::size_t>(below ? node.below : node.above);
  }
  return tree[place].value;
}

double Correction::log_ratio(std::span<const double> terms) const {
  double sum = 0;
  for (const Tree& tree : trees_) sum += value_of(tree, terms);
  return sum;
}

}  // namespace kernwright
