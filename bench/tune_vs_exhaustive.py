#!/usr/bin/env python3
"""Compares the winner of a short tuning with the best of all configurations.

For every shape: `kernwright tune --seconds N` from an empty cache (compiling included), then an
exhaustive search that has that winner as its incumbent, so that both are in the same finals.
The gap is the paired slowdown of the short tuning's winner against the fastest finalist.

usage: tune_vs_exhaustive.py --json FILE [--seconds 10] [--shapes MxNxK,...] [--bin FOLDER]
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SHAPES = ("8192x8192x8192,4096x4096x4096,2048x2048x2048,1024x1024x1024,4096x6144x4096,"
          "4096x28672x4096,4096x4096x14336,2048x10240x8192,2048x8192x28672,512x28672x4096")


def tune(tool, shape, cache, options):
    m, n, k = shape.split("x")
    command = [tool, "tune", "matmul", f"m={m}", f"n={n}", f"k={k}", "dtype=bf16", "--json",
               "--cache", str(cache), *options]
    started = time.monotonic()
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout), time.monotonic() - started


def stored_record(cache, after):
    """The measured record that this cache holds, written after `after` seconds since the epoch."""
    for path in sorted((cache / "v1" / "records").rglob("*")):
        if not path.is_file() or path.stat().st_mtime < after:
            continue
        # The entry's frame lies around the JSON, and its digests may hold a brace.
        text = path.read_bytes().decode("latin-1")
        at = text.find("{")
        while at >= 0:
            try:
                return json.JSONDecoder().raw_decode(text, at)[0]
            except ValueError:
                at = text.find("{", at + 1)
    return None


def gap(record):
    """Slowdown of the incumbent against the fastest finalist, with its interval; None: no incumbent."""
    for ranked in [record["winner"], *record["runners_up"]]:
        if ranked["is_incumbent"]:
            return {key: math.expm1(value) for key, value in ranked["slowdown"].items()}
    return None


def find(program, folder):
    """`program` in `folder`, or else on PATH, in the build, or in the dist that this script is of."""
    parents = pathlib.Path(__file__).resolve().parents[:3]
    folders = [*os.environ.get("PATH", "").split(os.pathsep),
               *(parent / "build" / "bin" for parent in parents),
               *(parent / "bin" for parent in parents)]
    places = os.pathsep.join(map(str, [folder] if folder else folders))
    return shutil.which(program, path=places) or sys.exit(f"no {program} in {places}: say --bin")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", default="10")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--bin", type=pathlib.Path,
                        help="folder of kernwright; default: on PATH, in build/bin, beside the dist")
    arguments = parser.parse_args()
    tool = find("kernwright", arguments.bin)
    document = {"bench": "tune_vs_exhaustive", "date": datetime.date.today().isoformat(),
                "command": f"tune_vs_exhaustive.py --seconds {arguments.seconds} --json "
                           + arguments.json.name, "rows": []}
    with tempfile.TemporaryDirectory() as name:
        shared = pathlib.Path(name) / "shared"
        for shape in arguments.shapes.split(","):
            own = pathlib.Path(name) / shape
            short, wall = tune(tool, shape, own, ["--seconds", arguments.seconds])
            shutil.copytree(own / "v1" / "records", shared / "v1" / "records", dirs_exist_ok=True)
            started = time.time()
            full, full_wall = tune(tool, shape, shared,
                                   ["--strategy", "exhaustive", "--seconds", "600"])
            record = stored_record(shared, started)
            row = {"problem": short["problem"], "ours_us": short["winner"]["median_us"],
                   "winner": short["winner"], "wall_seconds": wall, "shares": short["shares"],
                   "measured": short["measured"], "verdict": short["verdict"],
                   "trust": short["trust"], "search": short["search"],
                   "audit": [row for row in short["audit"] if row["trust"] != "A"],
                   "exhaustive_us": full["winner"]["median_us"],
                   "exhaustive_winner": full["winner"], "exhaustive_measured": full["measured"],
                   "exhaustive_seconds": full_wall, "exhaustive_verdict": full["verdict"],
                   "gap": gap(record) if record else None}
            document["device"] = {"name": full["device"], "uuid": full["uuid"],
                                  "driver": full["environment"]["driver"]}
            document["kernwright"] = full["environment"]["kernwright"]
            document["rows"].append(row)
            arguments.json.write_text(json.dumps(document, indent=1) + "\n")
            shown = "no incumbent" if row["gap"] is None else f"{100 * row['gap']['estimate']:.2f} %"
            print(f"{shape:18s} {row['ours_us']:9.2f} us in {wall:4.1f} s ({row['measured']} measured, "
                  f"{row['verdict']}, trust {row['trust']}, {row['search']['stop_reason']}); "
                  f"exhaustive {row['exhaustive_us']:9.2f} us in {full_wall:5.1f} s; behind {shown}",
                  flush=True)


if __name__ == "__main__":
    main()
