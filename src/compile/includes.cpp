#include "compile/includes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::string_view kAsks = "__has_include";
constexpr std::string_view kShortestQuestion = "has_include";  // of a macro's name
constexpr std::string_view kBlanks = " \t\v\f\r";

bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

bool is_word_character(char c) {
  constexpr unsigned char kFirstBeyondAscii = 0x80;
  return is_letter(c) || is_digit(c) || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= kFirstBeyondAscii;
}

/// Scans a text with its continued lines joined. Everything that looks like a directive counts as
/// one, also in comments, strings and skipped groups, because compilers differ there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) { join(text); }

  IncludeScan scan() {
    while (at_ < text_.size()) {
      if (is_word_character(text_[at_])) {
        at_word();
      } else if (std::string_view("#%?").find(text_[at_]) == std::string_view::npos) {
        ++at_;
      } else if (length_of_introducer() > 0 && starts_line()) {
        at_directive();
      } else {
        const bool pastes = at_ < directive_end_ && (accepts("##") || accepts("%:%:"));
        found_.pastes = found_.pastes || pastes;
        ++at_;
      }
    }
    return std::move(found_);
  }

 private:
  /// Removes every backslash at the end of a line together with the line end.
  void join(std::string_view text) {
    text_.reserve(text.size());
    while (!text.empty()) {
      const std::size_t backslash = text.find('\\');
      text_ += text.substr(0, backslash);
      if (backslash == std::string_view::npos) return;
      text.remove_prefix(backslash + 1);
      const std::size_t length = text.starts_with("\r\n") ? 2 : text.starts_with('\n') ? 1 : 0;
      if (length > 0) {
        joints_.push_back(text_.size());
      } else {
        text_ += '\\';
      }
      text.remove_prefix(length);
    }
  }

  bool accepts(std::string_view token) const {
    return std::string_view(text_).substr(at_).starts_with(token);
  }

  /// Returns the length of the `#`, in any of its spellings, at the present place; 0 if there is
  /// none.
  std::size_t length_of_introducer() const {
    if (accepts("#")) return 1;
    if (accepts("%:")) return 2;
    return accepts("?\?=") ? 3 : 0;
  }

  /// Returns whether only blanks and the end of a comment come before the present place on its
  /// line.
  bool starts_line() const {
    const std::string_view before = std::string_view(text_).substr(0, at_);
    const std::size_t last = before.find_last_not_of(kBlanks);
    if (last == std::string_view::npos || before[last] == '\n') return true;
    return before[last] == '/' && last > 0 && before[last - 1] == '*';
  }

  /// Returns the end of the blanks and comments that begin at `at`.
  std::size_t after_blanks(std::size_t at) const {
    while (at < text_.size()) {
      if (is_blank(text_[at])) {
        ++at;
      } else if (std::string_view(text_).substr(at).starts_with("/*")) {
        const std::size_t end = text_.find("*/", at + 2);
        at = end == std::string::npos ? text_.size() : end + 2;
      } else {
        break;
      }
    }
    return at;
  }

  std::string_view word_at(std::size_t at) const {
    std::size_t end = at;
    while (end < text_.size() && is_word_character(text_[end])) ++end;
    return std::string_view(text_).substr(at, end - at);
  }

  /// Returns the end of the directive that begins here: the next line end that is not in a comment.
  std::size_t end_of_directive() const {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != '\n') end = std::max(end + 1, after_blanks(end));
    return end;
  }

  // Looks ahead without moving on: if the rest were skipped as a comment, it could hide a
  // directive.
  void at_directive() {
    directive_end_ = end_of_directive();
    at_ += length_of_introducer();
    const std::size_t start = after_blanks(at_);
    const std::string_view name = word_at(start);
    if (name == "embed") {
      add(Include::Kind::embed, start, start + name.size());
    } else if (name == "include" || name == "include_next" || name == "import") {
      add(Include::Kind::include, start, start + name.size());
    }
  }

  void at_word() {
    const std::size_t start = at_;
    const std::string_view name = word_at(start);
    at_ += name.size();
    if (start < directive_end_ && kAsks.find(name) != std::string_view::npos) {
      found_.pieces.emplace(name);
    }
    const std::string_view before = std::exchange(previous_, name);
    if (name.size() < kShortestQuestion.size()) return;
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(), to_lower);
    if (!lower.ends_with(kShortestQuestion) && !lower.ends_with("has_include_next")) return;
    constexpr std::string_view kOnlyTests[] = {"defined", "ifdef", "ifndef", "elifdef", "elifndef"};
    const std::size_t next = after_blanks(at_);
    const bool is_asked = next < text_.size() && text_[next] == '(';
    if (!is_asked && std::ranges::find(kOnlyTests, before) != std::end(kOnlyTests)) return;
    add(Include::Kind::asks, start, is_asked ? next + 1 : text_.size());
  }

  /// Adds the include that starts at `start`. Its name, if it is written out, begins at `at` or
  /// after blanks.
  void add(Include::Kind kind, std::size_t start, std::size_t at) {
    Include include;
    include.kind = kind;
    include.line = line_of(start);
    at = after_blanks(at);
    if (at < text_.size() && (text_[at] == '"' || text_[at] == '<')) {
      include.is_quoted = text_[at] == '"';
      const std::size_t end = text_.find_first_of(include.is_quoted ? "\"\n" : ">\n", at + 1);
      if (end != std::string::npos && text_[end] != '\n') {
        include.name = text_.substr(at + 1, end - at - 1);
      }
    }
    found_.includes.push_back(std::move(include));
  }

  int line_of(std::size_t position) const {
    return static_cast<int>(
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n') +
        (std::ranges::upper_bound(joints_, position) - joints_.begin()));
  }

  std::string text_;
  std::vector<std::size_t> joints_;  ///< places in `text_` at which two lines were joined
  std::size_t at_ = 0;
  std::size_t directive_end_ = 0;  ///< of the last directive seen
  std::string_view previous_;      ///< word
  IncludeScan found_;
};

/// Returns whether a sequence of two or more of `pieces` spells `__has_include`.
bool can_be_pasted(const std::set<std::string, std::less<>>& pieces) {
  std::vector<bool> spelled(kAsks.size() + 1);
  spelled[0] = true;
  for (std::size_t end = 1; end <= kAsks.size(); ++end) {
    for (std::size_t start = 0; start < end; ++start) {
      const bool is_whole = end - start == kAsks.size();
      if (spelled[start] && !is_whole && pieces.contains(kAsks.substr(start, end - start))) {
        spelled[end] = true;
      }
    }
  }
  return spelled.back();
}

std::string refusal(const Include& include) {
  const std::string_view what = include.kind == Include::Kind::asks ? "__has_include" : "#include";
  if (include.kind == Include::Kind::embed) return "#embed is not supported";
  if (include.name.empty()) return concat(what, " has to be followed by a name, not by a macro");
  if (include.name.front() != '/') return {};
  return concat(what, " of ", include.name,
                ": kernels may include kernwright's headers, files beside them and the toolkit's "
                "headers, never an absolute path");
}

/// Calls `visit` with the name and the scan of a source, and of each header that it reaches, once.
/// Returns which of the headers these are. Errors: as `visit` returns.
template <typename Visit>
Result<std::vector<bool>> reach(HeaderText source, const std::vector<HeaderText>& offered,
                                const Visit& visit) {
  std::vector<bool> is_reached(offered.size());
  std::vector<HeaderText> pending{source};
  while (!pending.empty()) {
    const auto [place, text] = pending.back();
    pending.pop_back();
    IncludeScan scan = scan_includes(text);
    for (const Include& include : scan.includes) {
      const auto found = std::ranges::find(offered, include.name, &HeaderText::first);
      const auto at = static_cast<std::size_t>(found - offered.begin());
      if (found == offered.end() || is_reached[at]) continue;
      is_reached[at] = true;
      pending.push_back(*found);
    }
    KW_TRY(visit(place, scan));
  }
  return is_reached;
}

}  // namespace

IncludeScan scan_includes(std::string_view text) { return Scanner(text).scan(); }

std::vector<HeaderText> reached_headers(std::string_view source,
                                        const std::vector<HeaderText>& offered) {
  const std::vector<bool> is_reached =
      reach({"", source}, offered, [](std::string_view, IncludeScan&) {
        return Result<void>();
      }).value();
  std::vector<HeaderText> reached;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    if (is_reached[i]) reached.push_back(offered[i]);
  }
  return reached;
}

Result<std::vector<Include>> foreign_includes(const CompileRequest& request) {
  const std::vector<HeaderText> offered(request.headers.begin(), request.headers.end());
  std::vector<Include> foreign;
  std::set<std::string, std::less<>> pieces;
  bool pastes = false;
  const auto visit = [&](std::string_view place, IncludeScan& scan) -> Result<void> {
    pastes = pastes || scan.pastes;
    pieces.merge(scan.pieces);
    for (Include& include : scan.includes) {
      if (const std::string why = refusal(include); !why.empty()) {
        return Error{ErrorCode::compile, concat(place, "(", include.line, "): ", why)};
      }
      if (std::ranges::find(offered, include.name, &HeaderText::first) == offered.end()) {
        foreign.push_back(std::move(include));
      }
    }
    return {};
  };
  KW_TRY(reach({request.name, request.source}, offered, visit));
  if (pastes && can_be_pasted(pieces)) {
    return Error{ErrorCode::compile,
                 concat(request.name, ": pastes ", kAsks, " together of parts; it must be whole")};
  }
  return foreign;
}

}  // namespace kernwright
