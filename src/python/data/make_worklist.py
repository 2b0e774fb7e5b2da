#!/usr/bin/env python3
"""Writes bench/worklists/models.json, what data wheels are swept over: the problems of all models in
configs/ and in the example's, on one GPU, with 1 to 8192 tokens in powers of two. A sweep takes them in
this order and may be stopped at any time, so few tokens come first, and of those the small models.

    make_worklist.py [TOOL]      the program kernwright, build/bin/kernwright"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / "bench/worklists/models.json"
CONFIGS = [ROOT / "src/python/data/configs", ROOT / "src/examples/decode/configs"]
TOKENS = [1 << i for i in range(14)]


def weights(path):
    """About how many weights the model has, to order models by."""
    config = json.loads(path.read_text())
    inner = config["intermediate_size"] * config.get("num_local_experts", 1)
    return config["num_hidden_layers"] * config["hidden_size"] * (config["hidden_size"] + inner)


def main():
    tool = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/bin/kernwright")
    problems = {}
    configs = sorted((path for folder in CONFIGS for path in folder.glob("*.json")), key=weights)
    for tokens in TOKENS:
        for config in configs:
            listed = subprocess.run([tool, "worklist", str(config), "--tokens", str(tokens)], check=True,
                                    stdout=subprocess.PIPE, text=True)
            for problem in json.loads(listed.stdout)["problems"]:
                problems.setdefault(problem)
    lines = ",\n".join(f"  {json.dumps(problem)}" for problem in problems)
    OUT.write_text(f'{{"problems": [\n{lines}\n]}}\n')
    print(f"{OUT}: {len(problems)} problems of {len(configs)} models")


if __name__ == "__main__":
    main()
