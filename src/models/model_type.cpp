#include "models/model_type.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "model/expression/json_reader.h"
#include "support/names.h"
#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using detail::Diagnostics;
using detail::JsonReader;

constexpr std::int64_t kMostTurns = 64;  // of a loop; more than any list needs
constexpr std::string_view kIf = " if ";
constexpr std::string_view kThen = " ? ";
constexpr std::string_view kElse = " : ";

/// Splits the text at the first `separator`. Without one the second part is empty.
std::pair<std::string_view, std::string_view> parted(std::string_view text,
                                                     std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

/// Returns if a word of a problem begins with this token: a name and one equals sign.
bool begins_word(std::string_view token) {
  if (token.starts_with('[')) token.remove_prefix(1);
  const std::size_t at = token.find('=');
  return at != std::string_view::npos && is_identifier(token.substr(0, at)) &&
         !token.substr(at + 1).starts_with('=');
}

class TypeReader {
 public:
  TypeReader(const JsonReader& json, const Catalog& catalog) : json_(json), catalog_(catalog) {}

  ModelType read() {
    json_.expect_keys({"extends", "model_types", "architectures", "defaults", "values", "short",
                       "problems", "notes"});
    const std::vector<JsonReader> types = json_.required("model_types").elements();
    if (!types.empty()) type_.name = types.front().string();
    const auto values = json_.required("values").members();
    names_.assign(std::begin(kGivenNames), std::end(kGivenNames));
    for (const auto& [name, value] : values) names_.push_back(name);
    const JsonReader defaults = json_.optional("defaults");
    for (const auto& [name, value] : values) {
      type_.values.emplace(name, read_value(value, defaults.optional(name)));
    }
    for (const auto& [name, value] : defaults.members()) {
      if (std::ranges::find(names_, name) == names_.end()) value.fail("there is no such value");
    }
    for (const char* list : {"problems", "notes"}) {
      for (const JsonReader& line : json_.optional(list).elements()) {
        type_.lines.push_back(read_line(line));
      }
    }
    return std::move(type_);
  }

 private:
  ModelValue read_value(const JsonReader& json, const JsonReader& fallback) const {
    if (json.is_string()) return json.expression(names_);
    if (!json.is_object()) return detail::literal(concat(json.integer()));
    json.expect_keys({"field", "as", "none", "times", "words", "count"});
    ModelField field;
    const JsonReader names = json.required("field");
    if (names.is_string()) field.names.push_back(names.string());
    if (names.is_array()) field.names = read_texts(names);
    if (field.names.empty()) names.fail("expected a field's name, or several");
    field.kind = read_kind(json.optional("as"));
    if (fallback.present()) field.fallback = JsonNode{fallback.node()->value, 0, 0};
    const auto optional = [&](const JsonReader& of) {
      return of.present() ? std::optional(of.expression(names_)) : std::nullopt;
    };
    field.none = optional(json.optional("none"));
    field.times = optional(json.optional("times"));
    const JsonReader words = json.optional("words");
    if (words.is_array()) {
      field.elements = read_texts(words);
    } else {
      for (const auto& [theirs, ours] : words.members()) field.words[theirs] = ours.string();
    }
    if (field.kind == FieldKind::list) {
      std::vector<std::string> names_in_list = names_;
      names_in_list.emplace_back("element");
      field.counts = json.required("count").expression(names_in_list);
    }
    return field;
  }

  static FieldKind read_kind(const JsonReader& json) {
    constexpr std::string_view kKinds[] = {"size", "count", "flag", "number", "word", "list"};
    if (!json.present()) return FieldKind::size;
    const auto found = std::ranges::find(kKinds, json.string());
    if (found != std::end(kKinds)) return static_cast<FieldKind>(found - std::begin(kKinds));
    json.fail(
        concat("\"", json.string(), "\" is not one of size, count, flag, number, word, list"));
    return FieldKind::size;
  }

  static std::vector<std::string> read_texts(const JsonReader& json) {
    std::vector<std::string> texts;
    for (const JsonReader& text : json.elements()) texts.push_back(text.string());
    return texts;
  }

  ModelLine read_line(const JsonReader& json) {
    ModelLine line;
    if (json.is_string()) {
      read_problem(json, json.string(), line);
      return line;
    }
    json.expect_keys({"for", "if", "problems", "note", "error"});
    const std::size_t outside = names_.size();
    for (const auto& [name, values] : json.optional("for").members()) {
      names_.push_back(name);
      const bool given = values.is("given") && (name == "tokens" || name == "context");
      line.loops.push_back({name, given ? 0 : values.integer()});
      const std::int64_t count = line.loops.back().count;
      if (!given && (count < 1 || count > kMostTurns)) {
        values.fail(concat("expected 1 to ", kMostTurns, ", is ", count));
      }
    }
    if (const JsonReader condition = json.optional("if"); condition.present()) {
      line.conditions.push_back(condition.expression(names_));
    }
    for (const JsonReader& each : json.optional("problems").elements()) {
      line.lines.push_back(read_line(each));
    }
    line.note = read_text(json.optional("note"));
    line.error = read_text(json.optional("error"));
    names_.resize(outside);
    return line;
  }

  std::string read_text(const JsonReader& json) const {
    if (!json.present()) return {};
    std::string text = json.string();
    expect_known(json, text);
    return text;
  }

  void expect_known(const JsonReader& json, std::string_view text) const {
    const bool closed = visit_parts(text, [&](std::string_view part, bool is_name) {
      if (!is_name || std::ranges::find(names_, part) != names_.end() ||
          std::ranges::find(kGivenTexts, part) != std::end(kGivenTexts)) {
        return;
      }
      json.fail(concat("unknown name \"", part, "\" in braces, known are ", detail::join(names_)));
    });
    if (!closed) json.fail("a brace is not closed");
  }

  /// Reads a problem. One in no loop over tokens is repeated for all of them.
  void read_problem(const JsonReader& json, const std::string& text, ModelLine& line) {
    const bool loops = std::ranges::find(names_, "tokens") == names_.end();
    if (loops) {
      names_.emplace_back("tokens");
      line.loops.push_back({"tokens", 0});
    }
    const std::string_view shorthand = parted(text, " ").first;
    const JsonReader longer = json_.optional("short").optional(shorthand);
    if (longer.is_array()) {
      for (const JsonReader& front : longer.elements()) {
        read_words(json, front.string(), text.substr(shorthand.size()), line.lines.emplace_back());
      }
    } else if (longer.present()) {
      read_words(json, longer.string(), text.substr(shorthand.size()), line);
    } else {
      read_words(json, "", text, line);
    }
    if (loops) names_.pop_back();
  }

  void read_condition(const JsonReader& json, std::string_view text, ModelLine& line) const {
    if (!text.empty()) line.conditions.push_back(json.expression_of(text, names_));
  }

  /// Reads the words of a problem, with what `short` has for its beginning, and their conditions.
  void read_words(const JsonReader& json, std::string_view begin, std::string_view end,
                  ModelLine& line) const {
    const auto [front, of_front] = parted(begin, kIf);
    const auto [rest, of_rest] = parted(end, kIf);
    read_condition(json, of_front, line);
    read_condition(json, of_rest, line);
    const std::string text = concat(front, rest);
    std::vector<std::string> words;
    for (const std::string_view token : split(text, ' ')) {
      if (words.empty() || begins_word(token)) {
        words.emplace_back(token);
      } else {
        words.back() += concat(' ', token);
      }
    }
    line.operation = words.front();
    const Result<const Operation*> operation = catalog_.operation(line.operation);
    if (!operation) return json.fail(operation.error().message);
    for (std::size_t i = 1; i < words.size(); ++i) {
      line.words.push_back(read_word(json, words[i], **operation));
    }
  }

  ProblemWord read_word(const JsonReader& json, std::string_view text,
                        const Operation& operation) const {
    ProblemWord word;
    word.optional = text.starts_with('[') && text.ends_with(']');
    if (word.optional) text = text.substr(1, text.size() - 2);
    auto [name, value] = parted(text, "=");
    word.name = name;
    if (find_named(operation.dims, name)) {
      word.size = json.expression_of(value, names_);
      return word;
    }
    if (!find_named(operation.flags, name) && !find_named(operation.type_variables, name)) {
      json.fail(concat("\"", text, "\": ", operation.name, " has no dim, dtype or flag ", name));
    }
    while (!value.empty()) {
      auto [condition, rest] = parted(value, kThen);
      ProblemWord::Case& added = word.cases.emplace_back();
      if (rest.empty()) {
        std::swap(condition, rest);
      } else {
        added.when = json.expression_of(condition, names_);
      }
      std::tie(rest, value) = parted(rest, kElse);
      added.value = rest;
      expect_known(json, added.value);
    }
    if (word.cases.empty() || word.cases.back().when) {
      json.fail(concat("\"", text, "\": expected a word, or CONDITION ? WORD : WORD"));
    }
    return word;
  }

  JsonReader json_;
  const Catalog& catalog_;
  std::vector<std::string> names_;
  ModelType type_;
};

/// Returns the strings of the list `name`.
std::vector<std::string> texts_of(const JsonNode& root, std::string_view name) {
  std::vector<std::string> texts;
  const JsonNode* list = root.find(name);
  if (list == nullptr || !list->array()) return texts;
  for (const JsonNode& each : *list->array()) {
    if (each.string()) texts.push_back(*each.string());
  }
  return texts;
}

}  // namespace

Result<ModelType> parse_model_type(const Fragment& file, const Catalog& catalog) {
  KW_ASSIGN(const detail::MergedManifest merged,
            detail::read_merged({file.name, file.place, std::string(file.text)}, catalog.models()));
  std::vector<std::string> places;
  for (const JsonFile& each : merged.files) places.push_back(each.place);
  Diagnostics diagnostics(std::move(places));
  ModelType type = TypeReader(JsonReader(merged.root, diagnostics), catalog).read();
  if (!diagnostics.ok()) return diagnostics.error();
  return type;
}

Result<ModelType> find_model_type(const JsonNode& root, const JsonNode& text, std::string_view file,
                                  const Catalog& catalog) {
  const JsonNode* node = text.find("model_type");
  if (node == nullptr) node = root.find("model_type");
  const std::string name = node && node->string() ? *node->string() : std::string();
  std::vector<std::string> architectures = texts_of(text, "architectures");
  if (architectures.empty()) architectures = texts_of(root, "architectures");
  const Fragment* of_name = nullptr;
  const Fragment* of_architecture = nullptr;
  std::map<std::string, const Fragment*> types;
  for (const Fragment& each : catalog.models()) {
    KW_ASSIGN(const JsonNode model, parse_json(each.text, each.place));
    for (const std::string& type : texts_of(model, "model_types")) {
      if (const auto [other, is_new] = types.emplace(type, &each); !is_new) {
        return Error{ErrorCode::invalid_argument,
                     concat("model_type \"", type, "\" is defined twice, in ", other->second->place,
                            " and ", each.place)};
      }
      if (type == name) of_name = &each;
    }
    for (const std::string& architecture : texts_of(model, "architectures")) {
      if (std::ranges::find(architectures, architecture) != architectures.end()) {
        of_architecture = &each;
      }
    }
  }
  if (of_name) return parse_model_type(*of_name, catalog);
  if (of_architecture) {
    KW_ASSIGN(ModelType type, parse_model_type(*of_architecture, catalog));
    type.lines.emplace_back().note =
        concat("model_type \"", name, "\" is not known, so it is read as ", type.name,
               ", which has its architecture");
    return type;
  }
  std::vector<std::string> known;
  for (const auto& [type, where] : types) known.push_back(type);
  return Error{
      ErrorCode::invalid_argument,
      concat(file, ":", (node ? *node : root).line, ": ",
             node == nullptr ? std::string("the config has no model_type")
             : node->string()
                 ? concat("model_type \"", name, "\" is not known", did_you_mean(name, known))
                 : concat("model_type must be a string, is ", node->kind()),
             "; known are ", detail::join(known),
             ". Describe another model in a file models/NAME.json of --templates, or write the "
             "worklist by hand: {\"problems\": [\"matmul m=16 n=4096 k=4096 dtype=bf16\", ...]}")};
}

}  // namespace kernwright
