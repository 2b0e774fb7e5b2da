#!/usr/bin/env python3
"""Counts what limits attention: counters of Nsight Compute (ncu) for our kernels and cuDNN's, one call each with
cold caches and free clocks, for problems that attention_vs_peers.py lists by the same numbers. A call
of several kernels has a row for each. Ours is tuned first if the cache has no exact record.

Under ncu every kernel runs several times, alone: times here explain the times of
attention_vs_peers.py and do not replace them.

usage: attention_counters.py --json FILE [--shapes NUMBER|CLASS,...] [--seconds N] [--cache DIR]
"""

import argparse
import csv
import datetime
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import rows_vs_pytorch as rows
from attention_peers import Peer, cudnn_frontend, sdpa
from attention_problems import SHAPES, Shape, draw, wanted

# ncu's name for a figure -> the rows' name. A share is of the peak.
COUNTERS = {
    "Duration": "us",
    "DRAM Throughput": "dram_percent",
    "L2 Cache Throughput": "l2_percent",
    "L1/TEX Cache Throughput": "l1_percent",
    "SM Busy": "busiest_pipeline_percent",
    "Issue Slots Busy": "issue_percent",
    "Local Memory Spilling Requests": "spilling_requests",
    "SM Frequency": "mhz",
    "Grid Size": "blocks",
    "Block Size": "threads",
    "Registers Per Thread": "registers",
}
SCALES = {"ns": 1e-3, "hz": 1e-6}


def read_counters(text):
    """The kernels of ncu's CSV in base units, in order: {"kernel": name, counter: number}."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise RuntimeError(f"ncu counted nothing: {(lines or ['no output'])[-1][:300]}")
    kernels = {}
    for row in csv.DictReader(lines[begin:]):
        kernel = kernels.setdefault(row["ID"], {"kernel": row["Kernel Name"].partition("(")[0]})
        if row["Metric Name"] in COUNTERS:
            value = row["Metric Value"].replace(",", "")
            kernel[COUNTERS[row["Metric Name"]]] = float(value) * SCALES.get(row["Metric Unit"], 1)
        pipeline = re.match(r"(\w+) is the highest-utilized pipeline", row.get("Rule Description") or "")
        if pipeline:
            kernel["busiest_pipeline"] = pipeline[1]
    return list(kernels.values())


def call_each(cache, problem, seconds):
    """One call of each contestant between the marks that ncu counts from and to. Prints their names."""
    import torch

    library = rows.Library(cache)
    shape, kernel = Shape(problem), library.kernel(problem, seconds)
    description = kernel.summary
    t = draw(torch, shape, description["arguments"])
    made = {"ours": lambda: Peer(library.function(torch, kernel)),
            "sdpa_cudnn": lambda: sdpa(torch, shape, "sdpa_cudnn", "dense"),
            "cudnn_frontend": lambda: cudnn_frontend(torch, shape)}
    ready = {}
    with torch.no_grad():
        for name, maker in made.items():
            try:
                peer = maker()
                inputs = peer.prepare(t)
                peer.call(inputs)
                torch.cuda.synchronize()
                ready[name] = (peer, inputs)
            except Exception as error:  # a peer that does not run does not take part
                sys.stderr.write(f"{name}: {str(error).splitlines()[0][:200]}\n")
        for peer, inputs in ready.values():
            torch.cuda.cudart().cudaProfilerStart()
            peer.call(inputs)
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()
    print(json.dumps({"contestants": list(ready), "template": description["template"],
                      "configuration": description["configuration"]}))


def count(arguments, problem):
    """One row per kernel."""
    own = [sys.executable, str(pathlib.Path(__file__).resolve()), "--call", problem,
           "--seconds", str(arguments.seconds), *(["--cache", str(arguments.cache)] if arguments.cache else [])]
    log = arguments.json.with_suffix(".csv")
    ran = subprocess.run(["ncu", "--profile-from-start", "off", "--target-processes", "application-only",
                          "--clock-control", "none", "--cache-control", "all", "--csv", "--print-units", "base",
                          "--page", "details", "--set", "detailed", "--log-file", str(log), *own],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise RuntimeError((ran.stderr or ran.stdout).strip()[-300:])
    said = json.loads(ran.stdout.strip().splitlines()[-1])
    kernels = read_counters(log.read_text())
    log.unlink()
    return [{"problem": problem, "ours": f"{said['template']} {said['configuration']}", **kernel}
            for kernel in kernels]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--shapes", help="only these numbers and classes of the list, as 1,5,J")
    parser.add_argument("--seconds", type=float, default=6, help="of tuning per problem without a record")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.call:
        return call_each(arguments.cache, arguments.call, arguments.seconds)
    if arguments.json is None:
        parser.error("--json FILE is required")
    if not shutil.which("ncu") or importlib.util.find_spec("kernwright") is None:
        sys.stderr.write("ncu is not on PATH, or kernwright is not installed\n")
        return 77
    document = {"bench": "attention_counters", "command": " ".join(["attention_counters.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(),
                "kernwright": rows.package_commit(), "rows": []}
    failed = False
    only = arguments.shapes and arguments.shapes.split(",")
    for number, (name, problem) in SHAPES.items():
        if not wanted(number, name, only):
            continue
        try:
            new = [{"class": name, **row} for row in count(arguments, problem)]
        except (RuntimeError, json.JSONDecodeError, IndexError) as error:
            print(f"{number:4d} {name} {problem}: {error}", flush=True)
            failed = True
            continue
        document["rows"] += new
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
        for row in new:
            shares = ", ".join(f"{key.removesuffix('_percent')} {row[key]:.0f} %" for key in COUNTERS.values()
                               if key.endswith("_percent") and row.get(key) is not None)
            print(f"{number:4d} {name} {row['kernel'][:40]}: {row['us']:.1f} us, {shares}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
