#pragma once

#include <string>
#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

// Text of files, of their names, of users and of other programs may contain characters that move a
// terminal's cursor, hide themselves or turn the direction of writing. Errors quote such text as it
// is. These functions make it fit to be shown: they write such characters as `\x1b` or `\u202e`,
// and bytes that are not UTF-8 as `\xff`. All else stays as it is, so that a second call changes
// nothing.

/// Returns `text` on one line, since line breaks and tabs are escaped, too.
KERNWRIGHT_API std::string visible(std::string_view text);

/// Returns `text` with its line breaks.
KERNWRIGHT_API std::string visible_lines(std::string_view text);

/// Returns serialised JSON whose strings mean the same.
KERNWRIGHT_API std::string visible_json(std::string_view json);

}  // namespace kernwright
