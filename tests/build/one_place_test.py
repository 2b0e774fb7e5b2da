#!/usr/bin/env python3
"""Reads the sources for what is done in one place alone: text is printed where it is made visible,
and JSON is parsed where its depth and its length are limited."""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["src", "cache", "tuner"]

# The patterns to look for, what to use instead, and the files that may use them.
RULES = [
    (r"\b(?:v?f?printf|v?dprintf|f?put[cs]|putchar|putw|fwrite|perror|psignal|v?(?:warn|err)x?)"
     r"\s*\("
     r"|\bstd::(?:cout|cerr|clog|print|println)\b|\bllvm::(?:outs|errs|dbgs)\b|<iostream>"
     r"|\bwrite\s*\(\s*(?:STD|1\b|2\b)|/dev/(?:tty|std|fd/[12])",
     "print, report of cli/output.h",
     {"src/cli/output.cpp",
      # The help, which is ours, and the parser of the command line, whose words `report` prints.
      "src/cli/tool.cpp",
      # Programs of their own, which show errors by `kernwright::visible`.
      "src/examples/decode/main.cpp", "src/examples/get_best_kernel.cpp",
      "src/examples/device_memory.h"}),
    (r"\b(?:json|Json|ordered_json|basic_json)\s*(?:<[^>]*>)?::"
     r"(?:parse|sax_parse|accept|from_\w+)\s*\("
     r"|\"_json\b",
     "parse_json, parse_value of support/json.h",
     {"src/support/json.cpp",
      # The example sees the library from outside.
      "src/examples/decode/input.cpp"}),
]
COMMENT = re.compile(r"//.*")
# A line's end that is ours would be shown as \x0a, as one that is not ours is.
LINES_AS_ONE = re.compile(r"(?<![\w.>])print\((?:[^;\"]|\"(?:[^\"\\]|\\[^n])*\")*"
                          r"\"(?:[^\"\\]|\\[^n])*\\n")


def check(root):
    """All such places below `root`, as "file:line: text: what to use"."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name = str(path.relative_to(root))
            for match in LINES_AS_ONE.finditer(path.read_text()):
                number = path.read_text()[:match.start()].count("\n") + 1
                found.append(f"{name}:{number}: print: use print_lines, or print for each line")
            for number, line in enumerate(path.read_text().splitlines(), 1):
                line = COMMENT.sub("", line)
                for pattern, instead, places in RULES:
                    for match in re.finditer(pattern, line):
                        # A member of ours may have the name of a function of C.
                        ours = re.search(r"(?:\.|->)\s*$", line[:match.start()])
                        if not ours and name not in places:
                            found.append(f"{name}:{number}: {match[0]}: use {instead}")
    return found


class OnePlaceTest(unittest.TestCase):
    def planted(self, line, name="tuner/a.cpp"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(line + "\n")
            return check(pathlib.Path(folder))

    def test_nothing_is_done_elsewhere(self):
        self.assertEqual(check(ROOT), [])

    def test_what_is_done_elsewhere_is_found(self):
        for line in ['std::printf("%s", name);', 'fprintf(stderr, "x");', 'std::puts(text);',
                     'std::cerr << text;', 'llvm::errs() << text;', '::write(STDERR_FILENO, a, b);',
                     'write(2, a, b);', 'dprintf(2, "x");', 'perror("x");', '#include <iostream>',
                     'print(concat(a, "\\n  ", b));', 'print("a"\n  "b\\n");',
                     'std::fwrite(a, 1, n, stdout);', 'std::ofstream("/dev/tty") << text;',
                     'auto j = nlohmann::json::parse(text);', 'Json::parse(text, nullptr, false);',
                     'ordered_json::sax_parse(a, b);', 'json::from_cbor(bytes);',
                     'nlohmann::basic_json<Map>::parse(text);', 'auto j = R"([1])"_json;']:
            self.assertEqual(len(self.planted(line)), 1, line)
            self.assertEqual(len(self.planted(line, "src/examples/b.cpp")), 1, line)

    def test_what_is_ours_is_let_through(self):
        for line in ['std::snprintf(t, sizeof t, "%d", a);', 'print(concat(a, b));',
                     'page.print(a);', 'print_lines(concat(a, "\\n"));', 'print(a); b = "\\n";',
                     'store.put(record);', 'tar.write(bytes);',
                     '// std::printf(x)', 'file.warn(x);', 'Problem::parse(text);', 'parse_json(text, file);', 'write(fd, a, b);']:
            self.assertEqual(self.planted(line), [], line)


if __name__ == "__main__":
    sys.exit(unittest.main())
