#!/usr/bin/env python3
"""bench.sh and the benches it cannot call: bench_test.py [PROGRAM...], the real ones."""

import os
import pathlib
import shutil
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


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class BenchTest(FolderTest):
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


class PythonBenchTest(FolderTest):
    SCRIPTS = {"bench/tune_vs_exhaustive.py": "kernwright",
               "bench/vendor/tuning_curve.py": "matmul_vs_cublaslt"}

    def first_program(self, script, path):
        """What the script runs first: the fake programs leave their own path and fail."""
        ran = subprocess.run([sys.executable, script, "--json", self.folder / "out.json",
                              "--shapes", "16x16x16"], env=dict(os.environ, PATH=str(path)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertNotEqual(ran.returncode, 0)
        called = self.folder / "called"
        return called.read_text().strip() if called.exists() else ran.stderr

    def test_programs_are_found_on_path_then_in_the_build_then_in_the_dist(self):
        for source, program in self.SCRIPTS.items():
            tree, dist = self.folder / "tree", self.folder / "dist"
            script = tree / source
            installed = dist / "share/kernwright" / script.name
            for target in (script, installed):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, target)
            path = self.folder / "path"
            self.assertIn("--bin", self.first_program(script, path))
            places = [(dist / "bin", installed), (tree / "build/bin", script), (path, script)]
            for folder, runs in places:
                write_program(folder / program, f"#!/bin/sh\necho $0 > {self.folder}/called\nexit 1\n")
                self.assertEqual(self.first_program(runs, path), str(folder / program))
            shutil.rmtree(path)
            (self.folder / "called").unlink()


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1]))
