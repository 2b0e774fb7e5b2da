#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// A place in a text that asks the compiler for a file by its name.
struct Include {
  enum class Kind { include, asks, embed };

  Kind kind = Kind::include;  ///< `asks`: `__has_include` and macros called so
  std::string name;           ///< empty: not written there, but made by a macro
  bool is_quoted = false;     ///< "name", not <name>
  int line = 0;
};

/// The files that a text may include. A place counts even if the preprocessor would skip it:
/// between
/// `#if 0` and `#endif`, in a comment, or in a raw string at the start of a line. So no compiler
/// can find more than this. `pieces` are words of directives from which `__has_include` could be
/// pasted, if some directive `pastes`.
struct IncludeScan {
  std::vector<Include> includes;
  std::set<std::string, std::less<>> pieces;
  bool pastes = false;
};

IncludeScan scan_includes(std::string_view text);

/// A header's name as it is included, and its text.
using HeaderText = std::pair<std::string_view, std::string_view>;

/// Returns the headers that a source includes, itself or by others, in their order. If two have one
/// name, the first counts.
std::vector<HeaderText> reached_headers(std::string_view source,
                                        const std::vector<HeaderText>& offered);

/// Returns the includes that the request does not offer itself, so that the toolkit must have them.
/// They come from the request's source and from its headers, as far as the source reaches them.
/// Errors: `compile` with text and line for anything else that would make the compiler read a file:
/// an absolute path, a name that a macro makes, `#embed`.
Result<std::vector<Include>> foreign_includes(const CompileRequest& request);

}  // namespace kernwright
