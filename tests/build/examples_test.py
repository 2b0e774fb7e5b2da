#!/usr/bin/env python3
"""bench/worklists/examples.json holds the example of every operation, and nothing else."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

expected = set()
for path in (ROOT / "templates").glob("*/operation.json"):
    operation = json.loads(path.read_text())
    words = [f"{name}={value}" for name, value in operation["example"].items()]
    expected.add(" ".join([operation["operation"], *words]))
listed = set(json.loads((ROOT / "bench/worklists/examples.json").read_text())["problems"])
for problem in sorted(expected ^ listed):
    print("missing" if problem in expected else "no operation's example", f"{problem!r}", sep=": ")
sys.exit(1 if expected != listed else 0)
