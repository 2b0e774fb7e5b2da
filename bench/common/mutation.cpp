#include "bench/common/mutation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

namespace kernwright {
namespace {

using Replacements = std::map<std::string_view, std::string_view>;

const Replacements kRelations = {{"<", "<="},  {"<=", "<"},  {">", ">="},  {">=", ">"},
                                 {"==", "!="}, {"!=", "=="}, {"&&", "||"}, {"||", "&&"}};
const Replacements kArithmetic = {
    {"+", "-"},   {"-", "+"},   {"*", "+"},   {"/", "*"},   {"%", "/"},    {"<<", ">>"},
    {">>", "<<"}, {"&", "|"},   {"|", "&"},   {"^", "&"},   {"+=", "-="},  {"-=", "+="},
    {"*=", "+="}, {"/=", "*="}, {"&=", "|="}, {"|=", "&="}, {"<<=", ">>="}};
constexpr std::array<std::string_view, 5> kSkipped = {"asm", "static_assert", "template",
                                                      "__launch_bounds__", "alignas"};
constexpr std::array<std::string_view, 14> kSynchronise = {
    "sync",   "wait",  "fence",   "arrive",  "commit",  "barrier",  "asm",
    "expect", "await", "release", "acquire", "advance", "prefetch", "elect"};
constexpr std::array<std::string_view, 17> kNoStatement = {
    "return", "const", "constexpr",  "using",    "typedef", "extern", "struct", "static", "goto",
    "delete", "if",    "__shared__", "unsigned", "while",   "for",    "switch", "do"};

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

enum class TokenKind { word, number, literal, punctuation };

struct Token {
  TokenKind kind;
  std::size_t at;
  std::string_view text;
};

/// Splits a source into its tokens, without comments and directives.
std::vector<Token> tokens_of(std::string_view source) {
  constexpr std::array<std::string_view, 22> kLong = {
      "<<=", ">>=", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
      "/=",  "%=",  "&=", "|=", "^=", "<<", ">>", "->", "++", "--", "::"};
  std::vector<Token> tokens;
  std::size_t at = 0;
  const auto add = [&](TokenKind kind, std::size_t end) {
    tokens.push_back({kind, at, source.substr(at, end - at)});
    at = end;
  };
  const auto after = [&](std::string_view what, std::size_t from) {
    const std::size_t found = source.find(what, from);
    return found == source.npos ? source.size() : found + what.size();
  };
  bool begins_line = true;
  while (at < source.size()) {
    const char c = source[at];
    const std::string_view rest = source.substr(at);
    if (c == '\n') begins_line = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
      continue;
    }
    if (rest.starts_with("//") || (c == '#' && begins_line)) {
      at = after("\n", at) - 1;
      while (source[at - 1] == '\\') at = after("\n", at + 1) - 1;
      at = std::min(at + (source[at] == '\n' ? 0 : 1), source.size());
      continue;
    }
    begins_line = false;
    if (rest.starts_with("/*")) {
      at = after("*/", at);
    } else if (rest.starts_with("R\"(")) {
      add(TokenKind::literal, after(")\"", at));
    } else if (c == '"' || c == '\'') {
      std::size_t end = at + 1;
      while (end < source.size() && source[end] != c) end += source[end] == '\\' ? 2 : 1;
      add(TokenKind::literal, std::min(end + 1, source.size()));
    } else if (is_word(c)) {
      std::size_t end = at + 1;
      const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
      const auto continues = [&](std::size_t i) {
        if (is_word(source[i])) return true;
        return number && (source[i] == '.' || source[i] == '\'' ||
                          ((source[i] == '-' || source[i] == '+') &&
                           std::string_view("eEpP").find(source[i - 1]) != std::string_view::npos));
      };
      while (end < source.size() && continues(end)) ++end;
      add(number ? TokenKind::number : TokenKind::word, end);
    } else {
      const auto longer = std::find_if(kLong.begin(), kLong.end(),
                                       [&](std::string_view one) { return rest.starts_with(one); });
      add(TokenKind::punctuation, at + (longer == kLong.end() ? 1 : longer->size()));
    }
  }
  return tokens;
}

class Finder {
 public:
  explicit Finder(std::string_view source) : source_(source), tokens_(tokens_of(source)) {}

  std::vector<Mutation> find() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.kind == TokenKind::word && is_one_of(token.text, kSkipped)) {
        i = end_of_skipped(i);
        continue;
      }
      if (begins_statement(i)) add_dropped(i);
      if (token.kind == TokenKind::number) add_off_by_one(token);
      if (token.kind == TokenKind::punctuation) add_operator(token);
      follow_brackets(i);
    }
    return std::move(found_);
  }

 private:
  const Token* token(std::size_t i) const { return i < tokens_.size() ? &tokens_[i] : nullptr; }
  bool is(std::size_t i, std::string_view text) const {
    return i < tokens_.size() && tokens_[i].text == text;
  }

  /// Returns the last token of the brackets that follow token `i`.
  std::size_t end_of_skipped(std::size_t i) const {
    std::size_t depth = 0;
    while (i + 1 < tokens_.size()) {
      ++i;
      const std::string_view text = tokens_[i].text;
      if (text == "(" || text == "<" || text == "[") ++depth;
      if (text == ")" || text == ">" || text == "]") --depth;
      if (text == ">>") depth -= 2;
      if (depth == 0 && (text == ")" || text == ">" || text == ">>")) break;
      if (depth == 0 && text == ";") break;
    }
    return i;
  }

  /// Follows which brackets token `i` is in: '[', the head 'f' of a for, the head 'h' of another
  /// statement, or others.
  void follow_brackets(std::size_t i) {
    const std::string_view text = tokens_[i].text;
    if (text == "[") {
      inside_.push_back('[');
    } else if (text == "(") {
      const bool constant = i > 1 && is(i - 1, "constexpr");
      const std::size_t before = i - (constant ? 2 : 1);
      const bool first = i == 0;
      inside_.push_back(!first && is(before, "for")                           ? 'f'
                        : !first && (is(before, "if") || is(before, "while")) ? 'h'
                                                                              : '(');
    } else if (text == "{") {
      inside_.push_back('{');
    } else if ((text == "]" || text == ")" || text == "}") && !inside_.empty()) {
      closed_ = inside_.back();
      inside_.pop_back();
    }
  }

  /// Returns whether the innermost brackets, or those around them up to a block, choose elements.
  bool is_index() const {
    const std::size_t block = inside_.rfind('{') + 1;  // 0 if there is none
    return inside_.find_first_not_of('(', block) != inside_.npos;
  }
  bool is_in_for() const { return std::find(inside_.begin(), inside_.end(), 'f') != inside_.end(); }

  void add(MutationOperator made_by, bool indexes, std::size_t at, std::size_t length,
           std::string replace) {
    const std::string_view before = source_.substr(0, at);
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 if there is none
    found_.push_back({made_by, indexes, at, std::string(source_.substr(at, length)),
                      std::move(replace),
                      1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
                      1 + static_cast<int>(at - line_begin)});
  }

  void add_operator(const Token& token) {
    const std::size_t end = token.at + token.text.size();
    const auto is_space = [&](std::size_t i) {
      return i >= source_.size() || std::isspace(static_cast<unsigned char>(source_[i])) != 0;
    };
    if (token.at == 0 || !is_space(token.at - 1) || !is_space(end)) return;
    if (const auto to = kRelations.find(token.text); to != kRelations.end()) {
      add(MutationOperator::relation, true, token.at, token.text.size(), std::string(to->second));
    }
    const auto to = kArithmetic.find(token.text);
    // A loop that steps back does not end.
    if (to == kArithmetic.end() || (token.text.back() == '=' && is_in_for())) return;
    add(MutationOperator::arithmetic, is_index(), token.at, token.text.size(),
        std::string(to->second));
  }

  /// Makes a decimal integer one larger.
  void add_off_by_one(const Token& token) {
    std::size_t digits = 0;
    while (digits < token.text.size() && token.text[digits] >= '0' && token.text[digits] <= '9') {
      ++digits;
    }
    const std::string_view suffix = token.text.substr(digits);
    if (digits == 0 || digits > 9 || suffix.find_first_not_of("uUlL") != suffix.npos) return;
    add(MutationOperator::off_by_one, true, token.at, token.text.size(),
        std::to_string(std::stol(std::string(token.text.substr(0, digits))) + 1) +
            std::string(suffix));
  }

  bool begins_statement(std::size_t i) const {
    if (i == 0 || std::find(inside_.begin(), inside_.end(), '{') == inside_.end()) return false;
    if (inside_.back() != '{') return false;
    const std::string_view before = tokens_[i - 1].text;
    return before == ";" || before == "{" || before == "}" || before == "else" ||
           (before == ")" && (closed_ == 'f' || closed_ == 'h'));
  }

  /// Drops the statement that begins with token `first`, if it is an assignment, a call or a jump.
  void add_dropped(std::size_t first) {
    if (tokens_[first].kind != TokenKind::word || is_one_of(tokens_[first].text, kNoStatement)) {
      return;
    }
    const bool jump = is(first, "continue") || is(first, "break");
    // Skips the name that is assigned to or called, with members, elements and template arguments.
    std::size_t i = first + 1;
    bool called = false;
    while (i < tokens_.size() && !jump) {
      if (is(i, "::") || is(i, ".") || is(i, "->")) {
        i += 2;
      } else if (is(i, "[") || is(i, "(") || (is(i, "<") && source_[tokens_[i].at - 1] != ' ')) {
        called = called || is(i, "(");
        i = end_of_brackets(i) + 1;
      } else {
        break;
      }
    }
    const Token* const next = token(i);
    if (!next) return;
    const bool assigned = next->text.back() == '=' && next->text != "==" && next->text != "<=" &&
                          next->text != ">=" && next->text != "!=";
    if (!assigned && !((called || jump) && next->text == ";")) return;
    std::size_t end = i;
    while (end < tokens_.size() && !is(end, ";")) {
      if (is(end, "{")) return;  // a lambda or a list
      ++end;
    }
    if (end == tokens_.size()) return;
    const std::size_t at = tokens_[first].at;
    const std::string_view text = source_.substr(at, tokens_[end].at - at);
    for (const std::string_view word : kSynchronise) {
      if (text.find(word) != text.npos) return;
    }
    add(MutationOperator::dropped_statement, text.find('[') < text.find('=') || jump, at,
        text.size(), "");
  }

  /// Returns the token that closes the brackets which token `i` opens.
  std::size_t end_of_brackets(std::size_t i) const {
    const std::string_view open = tokens_[i].text;
    const std::string_view close = open == "[" ? "]" : open == "(" ? ")" : ">";
    std::size_t depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (is(i, open)) ++depth;
      if (is(i, close) && --depth == 0) break;
    }
    return i;
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  std::string inside_;
  char closed_ = ' ';
  std::vector<Mutation> found_;
};

}  // namespace

std::string_view to_string(MutationOperator made_by) {
  switch (made_by) {
    case MutationOperator::relation:
      return "relation";
    case MutationOperator::arithmetic:
      return "arithmetic";
    case MutationOperator::off_by_one:
      return "off_by_one";
    case MutationOperator::dropped_statement:
      return "dropped_statement";
  }
  return "";
}

std::vector<Mutation> mutations_of_source(std::string_view source) { return Finder(source).find(); }

std::vector<Mutation> mutations_of_manifest(std::string_view manifest) {
  // Its expressions have the operators and numbers of C++, and blanks keep the places.
  std::string expressions(manifest);
  const std::size_t launches = std::min(manifest.find("\"launches\""), manifest.size());
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    char& c = expressions[i];
    if (c == '"' || (i < launches && c != '\n')) c = ' ';
  }
  std::vector<Mutation> found = mutations_of_source(expressions);
  for (Mutation& one : found) one.indexes = true;
  return found;
}

}  // namespace kernwright
