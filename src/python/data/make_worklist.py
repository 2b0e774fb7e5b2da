#!/usr/bin/env python3
"""Prints the worklist that data wheels are swept over: the problems of all models in configs/ and in the
example's, on one GPU, for ranges of tokens and of contexts. A sweep takes them in this order and may be
stopped at any time, so the models that are served most come first.

    make_worklist.py [TOOL] > models.json      TOOL: the program kernwright, by default build/bin/kernwright"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDERS = [ROOT / "src/python/data/configs", ROOT / "src/examples/decode/configs"]
#: Models that come first.
FIRST = ("llama-3.1-8b", "qwen3-8b", "llama-3.2-1b", "qwen3-0.6b")
TOKENS, CONTEXTS = "1..8192", "1..32768"


def problems_of(tool, path):
    ran = subprocess.run([tool, "worklist", str(path), "--tokens", TOKENS, "--contexts", CONTEXTS],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout)["problems"]


def main():
    tool = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/bin/kernwright")
    paths = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.json"))}
    order = [paths.pop(name) for name in FIRST] + list(paths.values())
    problems = dict.fromkeys(text for path in order for text in problems_of(tool, path))
    lines = ",\n".join(f"  {json.dumps(problem)}" for problem in problems)
    print(f'{{"problems": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
