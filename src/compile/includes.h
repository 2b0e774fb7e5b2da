#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compile_request.h"
#include <kernwright/result.h>

namespace kernwright {

/// A place in a text that asks the compiler for a file by name.
struct Include {
  enum class Kind { include, asks, embed };

  Kind kind = Kind::include;  ///< `asks`: `__has_include` and macros called so
  std::string name;           ///< empty: not written there, but made by a macro
  bool is_quoted = false;     ///< "name", not <name>
  int line = 0;
};

/// What a text may include. A place is found whether or not the preprocessor would come to it: what
/// stands between `#if 0` and `#endif`, in a comment or in a raw string at the start of a line
/// counts, so that no reading of the text by a compiler finds more. `pieces` are the words of
/// its directives that `__has_include` could be pasted together of, where some directive `pastes`.
struct IncludeScan {
  std::vector<Include> includes;
  std::set<std::string, std::less<>> pieces;
  bool pastes = false;
};

IncludeScan scan_includes(std::string_view text);

/// What the request's source may include, with the headers it offers that are reached from there,
/// and that it does not offer itself: for the toolkit to look up. Errors: `compile`, naming text
/// and line, for what would make the compiler look at files beyond those: an absolute path, a name
/// that a macro makes, `#embed`.
Result<std::vector<Include>> foreign_includes(const CompileRequest& request);

}  // namespace kernwright
