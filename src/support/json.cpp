#include "support/json.h"

#include <charconv>
#include <cstddef>
#include <iterator>
#include <limits>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::size_t kMostMembers = 4096;

std::string beyond_depth() { return concat("nested deeper than ", kMostJsonDepth); }

/// Returns the limit that `text` exceeds, for a message; empty if `text` is short enough.
std::string beyond_bytes(std::string_view text) {
  if (text.size() <= kMostJsonBytes) return {};
  return concat(text.size(), " bytes of JSON, the most is ", kMostJsonBytes);
}

/// Counts the lines that the lexer has consumed. `token_line` is the line of the last character
/// that is not white space. The two differ because the lexer reads one character past the end of a
/// number, which may be the newline.
struct LineCounter {
  int line = 1;
  int token_line = 1;

  void consume(char c) {
    if (c == '\n') {
      ++line;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      token_line = line;
    }
  }
};

/// An input iterator over text that counts every character that it passes.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, LineCounter* counter) : at_(at), counter_(counter) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    counter_->consume(*at_);
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  LineCounter* counter_;
};

/// Returns the value of a number's text. The lexer replaces the point by the decimal point of the
/// host program's locale and calls `strtod`, whose result is wrong if that point has two bytes or
/// the locale has changed meanwhile. So the text is read again here.
double value_of(std::string text) {
  const std::size_t point = text.find_first_not_of("-+0123456789eE");
  if (point != std::string::npos) text[point] = '.';
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  // The number is too large or too small for a double.
  if (read.ec == std::errc::result_out_of_range) {
    const bool is_small =
        text.find("e-") != std::string::npos || text.find("E-") != std::string::npos;
    return is_small ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return value;
}

/// nlohmann's own builder of values, within limits and with numbers that do not depend on the
/// locale.
class ValueBuilder : public nlohmann::detail::json_sax_dom_parser<nlohmann::ordered_json> {
 public:
  explicit ValueBuilder(nlohmann::ordered_json& tree)
      : json_sax_dom_parser(tree, /*allow_exceptions_=*/false) {}

  const std::string& beyond() const { return beyond_; }

  // The parser calls these members through this type.
  // NOLINTBEGIN(bugprone-derived-method-shadowing-base-method)
  bool number_float(double, const std::string& text) {
    return json_sax_dom_parser::number_float(value_of(text), text);
  }
  bool start_object(std::size_t size) { return open() && json_sax_dom_parser::start_object(size); }
  bool start_array(std::size_t size) { return open() && json_sax_dom_parser::start_array(size); }
  bool end_object() { return close() && json_sax_dom_parser::end_object(); }
  bool end_array() { return close() && json_sax_dom_parser::end_array(); }
  bool key(std::string& name) {
    if (++members_.back() > kMostMembers) {
      beyond_ = concat("an object of more than ", kMostMembers, " members");
      return false;
    }
    return json_sax_dom_parser::key(name);
  }
  // NOLINTEND(bugprone-derived-method-shadowing-base-method)

 private:
  bool open() {
    if (members_.size() == kMostJsonDepth) beyond_ = beyond_depth();
    members_.push_back(0);
    return beyond_.empty();
  }
  bool close() {
    members_.pop_back();
    return true;
  }

  std::vector<std::size_t> members_;  ///< of each container that is open
  std::string beyond_;
};

/// Builds the tree from the parser's events. `open_` holds the containers that are being filled.
/// They join the tree when they are closed, so that no pointer into a growing vector is kept.
class TreeBuilder {
 public:
  TreeBuilder(const LineCounter& lines, std::string_view file) : lines_(lines), file_(file) {}

  JsonNode take_root() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(concat("integer ", value, " does not fit 64 bits with a sign"));
    }
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(double, const std::string& text) {
    if (text.find_first_not_of("-0123456789") == std::string::npos) {
      return fail(concat("integer ", text, " does not fit 64 bits with a sign"));
    }
    return add(value_of(text));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(const nlohmann::json::binary_t&) { return fail("binary value"); }

  bool start_object(std::size_t) { return open(JsonNode::Object{}); }
  bool start_array(std::size_t) { return open(JsonNode::Array{}); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [first, added] = keys_.back().emplace(name, lines_.token_line);
    if (!added) {
      return fail(concat("key \"", name, "\" is given twice, first on line ", first->second));
    }
    auto& members = std::get<JsonNode::Object>(open_.back().value);
    members.emplace_back(std::move(name), JsonNode{nullptr, lines_.token_line});
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& exception) {
    // "[json.exception...] parse error at line 1, column 2: syntax error ...": our message names
    // the place, so only the text after it is kept.
    std::string_view what = exception.what();
    if (const std::size_t column = what.find("column "); column != std::string_view::npos) {
      if (const std::size_t end = what.find(": ", column); end != std::string_view::npos) {
        what.remove_prefix(end + 2);
      }
    }
    return fail(what);
  }

 private:
  using Value = decltype(JsonNode::value);

  bool fail(std::string_view what) {
    if (error_.empty()) error_ = concat(file_, ":", lines_.token_line, ": ", what);
    return false;
  }

  bool add(Value value) {
    place(JsonNode{std::move(value), lines_.token_line});
    return true;
  }

  bool open(Value container) {
    if (open_.size() == kMostJsonDepth) return fail(beyond_depth());
    open_.push_back(JsonNode{std::move(container), lines_.token_line});
    keys_.emplace_back();
    return true;
  }

  bool close() {
    JsonNode done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    place(std::move(done));
    return true;
  }

  void place(JsonNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (auto* array = std::get_if<JsonNode::Array>(&open_.back().value)) {
      array->push_back(std::move(node));
    } else {
      std::get<JsonNode::Object>(open_.back().value).back().second = std::move(node);
    }
  }

  const LineCounter& lines_;
  std::string_view file_;
  JsonNode root_;
  std::vector<JsonNode> open_;
  // The keys of each open container, with their lines. Searching among its members instead would
  // take time that grows with the square of their number.
  std::vector<std::unordered_map<std::string, int>> keys_;
  std::string error_;
};

}  // namespace

std::string JsonPlace::in(std::span<const JsonFile> files) const {
  return concat(files[static_cast<std::size_t>(file)].place, ":", line);
}

bool JsonNode::number(double& out) const {
  if (const auto* real = std::get_if<double>(&value)) {
    out = *real;
    return true;
  }
  if (const std::int64_t* whole = integer()) {
    out = static_cast<double>(*whole);
    return true;
  }
  return false;
}

const JsonNode* JsonNode::find(std::string_view name) const {
  if (const Object* members = object()) {
    for (const auto& [key, member] : *members) {
      if (key == name) return &member;
    }
  }
  return nullptr;
}

std::string_view JsonNode::kind() const {
  constexpr std::string_view kKinds[] = {"null",   "boolean", "integer", "number",
                                         "string", "array",   "object"};
  return kKinds[value.index()];
}

Result<JsonNode> parse_json(std::string_view text, std::string_view file) {
  if (const std::string beyond = beyond_bytes(text); !beyond.empty()) {
    return Error{ErrorCode::invalid_argument, concat(file, ": ", beyond)};
  }
  LineCounter lines;
  TreeBuilder builder(lines, file);
  const char* begin = text.data();
  const bool parsed = nlohmann::json::sax_parse(
      CountingIterator(begin, &lines), CountingIterator(begin + text.size(), &lines), &builder);
  if (!parsed) return Error{ErrorCode::invalid_argument, builder.error()};
  return builder.take_root();
}

nlohmann::ordered_json parse_value(std::string_view text, std::string* beyond) {
  nlohmann::ordered_json value;
  ValueBuilder builder(value);
  std::string limit = beyond_bytes(text);
  const bool parsed = limit.empty() && nlohmann::ordered_json::sax_parse(text, &builder);
  if (limit.empty()) limit = builder.beyond();
  if (beyond != nullptr) *beyond = std::move(limit);
  if (parsed) return value;
  return nlohmann::ordered_json::value_t::discarded;
}

std::string text_member(const nlohmann::ordered_json& object, std::string_view name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace kernwright
