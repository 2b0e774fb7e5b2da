#!/usr/bin/env python3
"""Compiles what is installed for aarch64, the hosts of GH200, without linking: aarch64_check.py BUILD.

Reads the compile commands of the build folder BUILD. Headers of libraries are this machine's, which
are the same on both."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

COMPILER = "aarch64-linux-gnu-g++"
INSTALLED = ("src", "tuner", "cache")


def compiles(entry):
    """Returns true if the source compiles, and prints the compiler's messages if it does not."""
    command = shlex.split(entry["command"])
    cut = command.index("-o")
    run = subprocess.run([COMPILER, *command[1:cut], "-fsyntax-only", "-idirafter", "/usr/include",
                          entry["file"]], cwd=entry["directory"], stderr=subprocess.PIPE, text=True,
                         check=False)
    if run.returncode != 0:
        print(f"{entry['file']}:\n{run.stderr}", file=sys.stderr)
    return run.returncode == 0


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if entry["command"].split(" -o ")[1].startswith(INSTALLED)]
    if not entries:
        sys.exit(f"aarch64_check.py: {build} compiles nothing of {', '.join(INSTALLED)}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(pool.map(compiles, entries)).count(False)
    print(f"{len(entries)} sources for aarch64, {failed} failed")
    sys.exit(failed != 0)


main()
