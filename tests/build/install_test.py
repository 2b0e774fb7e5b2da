#!/usr/bin/env python3
"""install_test.py BUILD SOURCE: installs the build, then builds src/examples/ against the package."""

import os
import pathlib
import subprocess
import sys
import tempfile

build, source = sys.argv[1:]


def run(*command, **options):
    subprocess.run(command, check=True, **options)


with tempfile.TemporaryDirectory() as folder:
    prefix = pathlib.Path(folder) / "installed"
    examples = pathlib.Path(folder) / "examples"
    run("cmake", "--install", build, "--prefix", str(prefix), stdout=subprocess.DEVNULL)
    for standard in ("17", "20"):
        run("cmake", "-S", source, "-B", str(examples), "-D", f"CMAKE_PREFIX_PATH={prefix}",
            "-D", f"CMAKE_CXX_STANDARD={standard}", "-D", "CMAKE_BUILD_TYPE=Release",
            stdout=subprocess.DEVNULL)
        run("cmake", "--build", str(examples))
    run(str(prefix / "bin" / "kernwright"), "--version", env=os.environ | {"LD_LIBRARY_PATH": ""})
