#!/usr/bin/env python3
"""The counter of habits in comments, src/cmake/prose.py, on comments that are planted."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src/cmake"))
import prose  # noqa: E402


def habits(source):
    return dict(zip(prose.HABITS, prose.count([("cache/a.h", source)])[1]["cache"]))


def found(source):
    return {habit for habit, times in habits(source).items() if times}


class ProseTest(unittest.TestCase):
    def test_each_habit_is_counted_in_each_kind_of_comment(self):
        for text, habit in [("What it holds.", "What/Whether/Of"),
                            ("Null. Whether it is open.", "What/Whether/Of"),
                            ("Of each layer.", "What/Whether/Of"),
                            ("Errors: Of those none.", "What/Whether/Of"),
                            ("Null where there is none.", "where"), ("Where it is.", "where"),
                            ("The size is that of a page.", "that of"),
                            ("Those of the device.", "that of"),
                            ("It lies in the cache.", "lies"), ("They lie apart.", "lies")]:
            for source in [f"// {text}\n", f"/// {text}\nint a;\n", f"int a;  ///< {text}\n",
                           f"    //! {text}\n", f"int a = 1;  // {text}\n"]:
                self.assertEqual(found(source), {habit}, source)

    def test_a_sentence_may_go_on_in_the_next_line(self):
        self.assertEqual(found("/// The end\n/// Of a line.\n"), set())
        self.assertEqual(found("// The size is that\n// of a page.\n"), {"that of"})
        self.assertEqual(found("int a;  ///< the size\nint b;  ///< Of a page\n"),
                         {"What/Whether/Of"})
        self.assertEqual(found("// The end.\n\n// What follows.\n"), {"What/Whether/Of"})
        self.assertEqual(found("/// The end.\n///\n/// What follows.\n"), {"What/Whether/Of"})
        self.assertEqual(habits("// where\n// where\n")["where"], 2)

    def test_only_comments_are_read(self):
        for source in ['auto a = "https://where.org";\n', 'auto a = R"(// What it is)";\n',
                       'auto a = R"x(\n)" // where\n)x";\n', "int where = 1;\n",
                       "char a = '\"';\nint where;  // here\nchar b = '\"';\n"]:
            self.assertEqual(found(source), set(), source)
        self.assertEqual(found("int a = 1'000;  // where it's\n"), {"where"})

    def test_a_room_above_a_bar_is_named(self):
        rooms = [("src/cli/a.cpp", "// where " + "word " * 499), ("src/cli/b.h", "// where\n"),
                 ("src/model/a.h", "// What " + "word " * 99), ("bench/a.cpp", "// Of a. Of b.")]
        self.assertEqual(prose.excesses(rooms),
                         ['bench: "What/Whether/Of" 2 times in 4 words of comments, 5000.0 per '
                          "10,000; the limit is 2",
                          'src/cli: "where" 2 times in 501 words of comments, 39.9 per 10,000; '
                          "the limit is 20"])

    def test_tests_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("tests/a.cpp", "src/cli/a.cpp"):
                (root / name).parent.mkdir(parents=True)
                (root / name).write_text("// What it is. What it has.\n")
            self.assertEqual([name for name, _ in prose.sources_in(root)], ["src/cli/a.cpp"])
            run = subprocess.run([sys.executable, "-B", ROOT / "src/cmake/prose.py", root],
                                 capture_output=True, text=True, check=False)
            self.assertEqual((run.returncode, run.stdout.split(":")[0]), (1, "src/cli"))
            (root / "src/cli/a.cpp").write_text("// Is it?\n")
            self.assertEqual(subprocess.run([sys.executable, "-B", ROOT / "src/cmake/prose.py",
                                             root], check=False).returncode, 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
