#!/usr/bin/env python3
"""targets_test.py BUILD: the targets of the Makefile build what they install or pack, and no more."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src/cmake"))
from wheel_systems import systems  # noqa: E402


def commands(target):
    """Returns the commands of a CMake target, from an empty folder on."""
    return subprocess.run(["cmake", "--build", BUILD, "--target", target, "--", "-t", "commands", target],
                          text=True, check=True, stdout=subprocess.PIPE).stdout


def recipe(*words):
    """Returns the commands that make would run."""
    return subprocess.run(["make", "-n", "-C", ROOT, *words], text=True, check=True,
                          stdout=subprocess.PIPE).stdout


class TargetsTest(unittest.TestCase):
    def test_what_is_installed_needs_no_test_and_no_bench(self):
        for target in ("installed", "kernwright_cli"):
            built = commands(target)
            self.assertIn("bin/kernwright", built)
            for folder in ("tests/", "bench/"):
                self.assertNotIn(f" {ROOT}/{folder}", built, target)

    def test_make_asks_for_what_it_needs(self):
        for words, target in ((["build"], "installed"), (["data-wheel", "SKU=h100"], "kernwright_cli"),
                              (["dist"], "dist"), (["wheel"], "kernwright_python")):
            builds = [line for line in recipe(*words).splitlines() if line.startswith("cmake --build")]
            self.assertEqual(len(builds), 1, words)
            self.assertTrue(builds[0].endswith(f"--target {target}"), builds[0])

    def test_a_wheel_says_which_systems_are_too_old(self):
        self.assertEqual(systems("kernwright-0.1.0-cp310-abi3-manylinux_2_34_x86_64.whl"),
                         "for glibc 2.34 or newer; older systems are excluded: RHEL 8, Debian 11")
        self.assertIn("Debian 12", systems("kernwright-0.1.0-cp310-abi3-manylinux_2_41_x86_64.whl"))
        self.assertEqual(systems("k-1-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"),
                         "for glibc 2.17 or newer")
        with self.assertRaises(ValueError):
            systems("kernwright-0.1.0-cp310-abi3-linux_x86_64.whl")


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
