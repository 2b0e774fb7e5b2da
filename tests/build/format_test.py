#!/usr/bin/env python3
"""Every source is as clang-format 19 leaves it."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
clang_format = shutil.which("clang-format-19")
if not clang_format:
    print("clang-format-19 is not installed")
    sys.exit(77)
sources = [path for folder in ("src", "tuner", "cache", "tests", "bench", "templates")
           for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
sys.exit(subprocess.run([clang_format, "--dry-run", "-Werror", *sources]).returncode)
