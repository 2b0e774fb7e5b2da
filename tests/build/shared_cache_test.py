#!/usr/bin/env python3
"""Many processes that start at once on one empty directory and ask for the same keys.

    shared_cache_test.py KERNWRIGHT [--processes N] [--keys N] [--seconds N]

Every process is served every key, each artifact is compiled by one of them, and all end in time. Works without a
GPU, by prediction; needs NVRTC.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from toolkit import skip_without_compiler


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    skip_without_compiler(options.tool)
    with tempfile.TemporaryDirectory(prefix="kernwright-shared-") as name:
        folder = pathlib.Path(name)
        # Columns are compiled in: every key has bits of its own.
        problems = [f"rmsnorm rows=16 columns={64 * (i + 1)} dtype=bf16" for i in range(options.keys)]
        processes = []
        start = time.monotonic()
        for index in range(options.processes):
            random.Random(index).shuffle(problems)
            worklist = folder / f"worklist-{index}.json"
            worklist.write_text(json.dumps({"problems": problems}))
            processes.append(subprocess.Popen(
                [options.tool, "prewarm", str(worklist), "--sku", "h200", "--cache", str(folder / "cache"), "--json"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        compiled = 0
        for process in processes:
            try:
                out, err = process.communicate(timeout=max(1, options.seconds - (time.monotonic() - start)))
            except subprocess.TimeoutExpired:
                for left in processes:
                    left.kill()
                print(f"not done after {options.seconds:.0f} s")
                return 1
            if process.returncode != 0:
                print(out, err)
                return 1
            compiled += json.loads(out)["compiled"]
        artifacts = len(list((folder / "cache").rglob("*.kwa")))
        print(f"{options.processes} processes, {options.keys} keys: {artifacts} artifacts, {compiled} compiles, "
              f"{time.monotonic() - start:.1f} s")
        return 0 if compiled == artifacts and artifacts >= options.keys else 1


if __name__ == "__main__":
    sys.exit(main())
