#!/usr/bin/env python3
"""bench.sh and the benches it cannot call: bench_test.py [PROGRAM...], the real ones."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = [pathlib.Path(argument) for argument in sys.argv[1:]]


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class BenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, programs):
        """Runs bench.sh on a build with these programs: name -> shell lines."""
        for name, lines in programs.items():
            write_program(self.folder / "bin" / name, f"#!/bin/sh\n{lines}\n")
        (self.folder / "benches.txt").write_text("".join(name + "\n" for name in programs))
        return subprocess.run([ROOT / "src/cmake/bench.sh", self.folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def test_what_cannot_run_is_skipped_with_its_reason(self):
        ran = self.bench({"works": "echo done > $2", "asks": "echo usage: asks WHAT >&2; exit 77",
                          "lacks": "echo no GPU >&2; exit 77"})
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertEqual(ran.stdout.splitlines(),
                         ["== works", "== asks", "usage: asks WHAT", "skipped: needs arguments",
                          "== lacks", "no GPU", "skipped: cannot run here"])
        self.assertEqual((self.folder / "bench-results/works.json").read_text(), "done\n")

    def test_a_failure_fails_after_all_have_run(self):
        ran = self.bench({"breaks": "exit 1", "works": "echo fine"})
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout.splitlines(),
                         ["== breaks", "== works", "fine", "failed: breaks"])

    @unittest.skipUnless(PROGRAMS, "no benches are built")
    def test_benches_that_need_arguments_say_so(self):
        for program in PROGRAMS:
            ran = subprocess.run([program, "--json", self.folder / "out.json"],
                                 stderr=subprocess.PIPE, text=True)
            self.assertEqual(ran.returncode, 77, program)
            self.assertTrue(ran.stderr.startswith(f"usage: {program.name} "), ran.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1]))
