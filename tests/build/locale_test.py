#!/usr/bin/env python3
"""Reads the library's sources for calls that follow the locale of the host program: a decimal comma,
or the letters of another alphabet, must not reach what is parsed or printed."""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["src/support", "src/model", "src/models", "src/compile", "src/device", "src/launch", "src/service", "src/cli",
           "src/kernwright", "cache", "tuner"]

INSTEAD = {
    r"\b(?:strto(?:d|f|ld)|sto(?:d|f|ld)|atof|v?f?s?scanf)\s*\(": "std::from_chars",
    r"\b(?:is(?:alpha|digit|alnum|x?digit|space|upper|lower|punct|print|cntrl|graph)|to(?:upper|lower))\s*\(":
        "is_letter, is_digit, to_lower of support/text.h",
    r"\b(?:str(?:n?casecmp|coll|xfrm)|setlocale)\s*\(": "a comparison of bytes",
    r"\"[^\"]*%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?L?[fFgGeEaA]": "fixed, significant",
    r"\"[^\"]*%[-+#0\d]*'": "concat",
    r"\b[iow]?stringstream\b|\bstd::(?:cin|cout|cerr|format)\b|<iostream>|<iomanip>": "concat",
}
# The one thing to use instead is made here.
MADE = {("src/support/text.h", "concat")}
COMMENT = re.compile(r"//.*")


def check(root):
    """All such calls below `root`, as "file:line: call: what to use"."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name = str(path.relative_to(root))
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for pattern, instead in INSTEAD.items():
                    match = re.search(pattern, COMMENT.sub("", line))
                    if match and (name, instead) not in MADE:
                        found.append(f"{name}:{number}: {match[0]}: use {instead}")
    return found


class LocaleTest(unittest.TestCase):
    def planted(self, line):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tuner" / "a.cpp"
            path.parent.mkdir()
            path.write_text(line + "\n")
            return check(pathlib.Path(folder))

    def test_nothing_follows_the_locale(self):
        self.assertEqual(check(ROOT), [])

    def test_what_does_is_found(self):
        for line in ['double x = std::strtod(text, nullptr);', 'x = std::stod(text);',
                     'std::sscanf(text, "%d", &x);', 'if (std::isdigit(c)) {', 'c = std::tolower(c);',
                     'std::snprintf(t, sizeof t, "%.1f s", x);', 'std::printf("%8.3g", x);',
                     'std::printf("%-*.*f|", 3, 2, x);', 'std::ostringstream out;']:
            self.assertEqual(len(self.planted(line)), 1, line)

    def test_what_does_not_is_let_through(self):
        for line in ['std::from_chars(a, b, x);', 'std::snprintf(t, sizeof t, "%-10s %7d", a, b);',
                     '// unlike std::strtod(x)', 'is_digit(c);', 'concat(x, " %");', 'a % f;']:
            self.assertEqual(self.planted(line), [], line)


if __name__ == "__main__":
    sys.exit(unittest.main())
