#!/usr/bin/env python3
"""Kills the tool at random points of what changes a cache, and looks for what that must never cost.

    crash_test.py KERNWRIGHT [--points N] [--seed N]

After every kill -9: no file of the cache is torn, no record that was published is gone, a bundle that lies under
its name installs, an installation in use is whole. At the end everything completes. Works without a GPU, by
prediction; needs NVRTC.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from toolkit import skip_without_compiler

SKU = ["--sku", "h200"]


class Crash(Exception):
    """Damage that a kill must not cause."""


class World:
    """One cache, the bundle made of it, and the folder that it is installed in."""

    def __init__(self, tool, folder):
        self.tool = tool
        self.cache = folder / "cache"
        self.fleet = folder / "fleet"
        for root in (self.cache, self.fleet):  # verify refuses what is not there
            root.mkdir()
        self.bundle = folder / "bundle.tar.zst"
        self.worklist = folder / "worklist.json"
        self.records = set()
        self.durations = {}

    def run(self, *words):
        return subprocess.run([self.tool, *map(str, words)], capture_output=True, text=True, check=False)

    def commands(self, rng):
        """Returns the commands that may be killed, by name."""
        columns = rng.randrange(64, 4096, 64)
        problem = f"rmsnorm rows=16 columns={columns} dtype=bf16".split()
        self.worklist.write_text(json.dumps({"problems": [
            {"operation": "vector_add", "dims": {"n": [rng.randrange(1, 1 << 20), 4096]}, "flags": {"dtype": "fp32"}},
            f"rmsnorm rows=8 columns={columns} dtype=fp16"]}))
        cache = ["--cache", self.cache]
        return {
            "tune": ["tune", *problem, *SKU, *cache],
            "sweep": ["sweep", self.worklist, *SKU, *cache],
            "sweep on two": ["sweep", self.worklist, *SKU, "--devices", "0,1", *cache],
            "prewarm": ["prewarm", self.worklist, *SKU, *cache],
            "export": ["cache", "export", self.bundle, *cache],
            "install": ["cache", "install", self.bundle, "--allow-unsigned", "--cache", self.fleet],
            "merge": ["cache", "merge", self.cache, "--cache", self.fleet],
        }

    def kill_one(self, rng):
        name, words = rng.choice(sorted(self.commands(rng).items()))
        if name == "install" and not self.bundle.exists():
            return f"{name}, of nothing"
        expected = self.durations.get(name, 1.0)
        start = time.monotonic()
        process = subprocess.Popen([self.tool, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0, 1.1 * expected))
            self.durations[name] = time.monotonic() - start
            return f"{name}, which was over after {self.durations[name]:.2f} s"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{name}, killed after {time.monotonic() - start:.2f} of about {expected:.2f} s"

    def check(self):
        for root in (self.cache, self.fleet):
            verified = self.run("cache", "verify", "--cache", root)
            if verified.returncode != 0:
                raise Crash(f"{root.name} has defects:\n{verified.stdout}{verified.stderr}")
        records = set(self.cache.rglob("*.kwr"))
        if lost := self.records - records:
            raise Crash(f"records are lost: {lost}")
        self.records = records
        current = self.fleet / "bundles" / "current"
        if current.is_symlink():
            # A layer of its own: its records have their bits, or verify names them.
            copy = self.run("cache", "verify", "--cache", current.resolve())
            if copy.returncode != 0 or not any(current.resolve().rglob("*.kwr")):
                raise Crash(f"the installed bundle is not whole:\n{copy.stdout}{copy.stderr}")

    def complete(self):
        for name, words in self.commands(random.Random(0)).items():
            done = self.run(*words)
            if done.returncode != 0:
                raise Crash(f"{name} does not complete:\n{done.stdout}{done.stderr}")
        self.check()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    skip_without_compiler(options.tool)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kernwright-crash-"))
    world = World(options.tool, folder)
    probe = world.run("tune", "vector_add", "n=4096", "dtype=fp32", *SKU, "--cache", world.cache)
    packed = world.run("cache", "export", world.bundle, "--cache", world.cache)
    for ran in (probe, packed):
        if ran.returncode != 0:
            print(ran.stdout, ran.stderr)
            shutil.rmtree(folder)
            return 1
    rng = random.Random(options.seed)
    killed = 0
    for point in range(options.points):
        what = world.kill_one(rng)
        killed += "killed" in what
        try:
            world.check()
        except Crash as crash:
            print(f"point {point} of seed {options.seed}: {what}: {crash}\nleft in {folder}")
            return 1
    world.complete()
    print(f"{options.points} points, {killed} kills: {len(world.records)} records, none lost, none torn")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
