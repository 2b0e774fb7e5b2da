#include "service/report/report_page.h"

#include <utility>
#include <vector>

#include "support/libraries/sha256.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The scripts in their order in the page: a script comes before its users.
constexpr std::string_view kScripts[] = {"base.js",   "marks.js",  "overview.js", "matrix.js",
                                         "panels.js", "search.js", "family.js",   "main.js"};
constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"data\">";
constexpr std::string_view kDataEnd = "</script>";

std::string_view file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_report_page()) {
    if (file.path == name) return file.content;
  }
  return {};
}

/// Wraps all scripts in one function, so that none of their names is global.
std::string script() {
  std::string text = "\"use strict\";\n(() => {\n";
  for (const std::string_view name : kScripts) text += file(name);
  return text += "})();\n";
}

/// Escapes `<`, which occurs only in strings of the JSON. Without it no text can end the element or
/// open a comment in it.
std::string escaped_json(std::string_view json) {
  std::string escaped;
  escaped.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

/// Returns `text` with a value in place of each {{name}} of `values`. Inserted values are not
/// searched again.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find("{{");
    out += text.substr(0, open);
    if (open == std::string_view::npos) break;
    text.remove_prefix(open + 2);
    const std::size_t close = text.find("}}");
    const std::string_view name = text.substr(0, close);
    for (const auto& [known, value] : values) {
      if (known == name) out += value;
    }
    text.remove_prefix(close + 2);
  }
  return out;
}

}  // namespace

std::string report_page(std::string_view title, std::string_view json) {
  const std::string style(file("page.css"));
  const std::string code = script();
  const std::string policy = concat("default-src 'none'; script-src 'sha256-", sha256_base64(code),
                                    "'; style-src 'sha256-", sha256_base64(style),
                                    "'; img-src data:; base-uri 'none'; form-action 'none'");
  return filled(file("page.html"), {{"title", escaped_html(title)},
                                    {"policy", policy},
                                    {"style", style},
                                    {"data", concat(kDataBegin, escaped_json(json), kDataEnd)},
                                    {"script", code}});
}

Result<std::string> report_data_of(std::string_view page) {
  const std::size_t begin = page.find(kDataBegin);
  if (begin == std::string_view::npos) {
    return Error{ErrorCode::corrupt, "no report: the page has no data"};
  }
  const std::string_view rest = page.substr(begin + kDataBegin.size());
  const std::size_t end = rest.find(kDataEnd);
  if (end == std::string_view::npos) {
    return Error{ErrorCode::corrupt, "no report: its data does not end"};
  }
  return std::string(rest.substr(0, end));
}

}  // namespace kernwright
