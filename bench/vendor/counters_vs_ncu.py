#!/usr/bin/env python3
"""How far the counters of `kernwright profile` are from those of Nsight Compute (ncu): winners of a
worklist, one launch each on a clean L2 and with free clocks, under the one and under the other.
Problems without a record are tuned first. A share counts as equal within 3 % of itself or one
point, since a unit that hardly works reads a fraction of a percent. On an H100 ncu counted 1.9
to 2.8 MB more written bytes than we did for 16 of 20 kernels, also for those that write a few
kilobytes, and such rows count as different.

usage: counters_vs_ncu.py --json FILE [--worklist FILE] [--seconds N] [--cache DIR] [--bin FOLDER]
"""

import argparse
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

SLACK = 0.03
# What a difference may be in any case: points of a share, microseconds, bytes, warps.
LEAST = {"%": 1, "ns": 100, "byte": 65536, "warps": 0.1}


def run(program, *words):
    """What the program prints, as JSON. Ends this program where it fails."""
    ran = subprocess.run([program, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not ran.stdout.strip().startswith("{"):
        sys.exit(f"{' '.join(map(str, words))}: {ran.stderr.strip()[-600:]}")
    sys.stderr.write(ran.stderr)
    return json.loads(ran.stdout)


def sets_of(profile, source):
    """The winner's set of each problem on a cold L2."""
    return {row["problem"]: one for row in profile["problems"] for one in row.get("counters", [])
            if one["role"] == "winner" and one["cache"] == "cold" and one["source"] == source}


def compared(ours, theirs):
    """A row for each counter of each kernel."""
    for mine, other in zip(ours["kernels"], theirs["kernels"]):
        for name, value in mine["values"].items():
            a, b = value["value"], other["values"].get(name, {}).get("value")
            row = {"kernel": mine["kernel"], "counter": name, "unit": value["unit"], "ours": a, "ncu": b}
            if a is not None and b is not None:
                row["difference"] = a / b - 1 if b else (0 if a == b else None)
                row["equal"] = abs(a - b) <= max(SLACK * abs(b), LEAST[value["unit"]])
            yield row


def table(rows):
    """Prints how each counter agreed."""
    print(f"{'counter':70} equal  of  worst (ours, ncu, problem)")
    for name in dict.fromkeys(row["counter"] for row in rows):
        some = [row for row in rows if row["counter"] == name and row.get("equal") is not None]
        if not some:
            print(f"{name:70} not counted by both")
            continue
        worst = max(some, key=lambda row: (not row["equal"], abs(row["difference"] or 0)))
        print(f"{name:70} {sum(row['equal'] for row in some):5} {len(some):3}  "
              f"{worst['ours']:.6g}, {worst['ncu']:.6g}, {worst['problem'][:60]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--worklist", type=pathlib.Path, help="default: counters_hopper.json")
    parser.add_argument("--seconds", type=float, default=4, help="of tuning per problem without a record")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("counters_cache"))
    parser.add_argument("--bin", type=pathlib.Path, help="folder of kernwright and launch_winners")
    arguments = parser.parse_args()
    here = pathlib.Path(__file__).resolve()
    builds = [p / folder for p in here.parents[:3] for folder in ("build/bin", "bin")]
    bins = [arguments.bin] if arguments.bin else builds
    program = next((p / "kernwright" for p in bins if (p / "kernwright").exists()), None)
    program or sys.exit(f"no kernwright in {', '.join(map(str, bins))}: say --bin")
    beside = [p / "worklists/counters_hopper.json" for p in here.parents[:2]]
    lists = [arguments.worklist] if arguments.worklist else beside
    worklist = next((p for p in lists if p.exists()), None) or sys.exit(f"no {lists[0]}")
    ncu = shutil.which("ncu")
    if ncu is None:
        sys.stderr.write("ncu is not on PATH\n")
        return 77
    cache = f"--cache={arguments.cache}"
    run(program, "sweep", str(worklist), cache, f"--seconds={arguments.seconds}")
    began = time.monotonic()
    ours = run(program, "profile", str(worklist), cache)
    seconds = time.monotonic() - began

    mine = sets_of(ours, "cupti")
    kernels = sorted({kernel["kernel"] for one in mine.values() for kernel in one["kernels"]})
    counters = sorted({name for one in mine.values() for kernel in one["kernels"] for name in kernel["values"]})
    log = arguments.json.with_suffix(".csv")
    # Only problems with counters of ours: an ambiguous kernel goes to the first problem that wants it.
    listed = arguments.json.with_suffix(".worklist.json")
    listed.write_text(json.dumps({"problems": list(mine)}))
    began = time.monotonic()
    ran = subprocess.run([ncu, "--target-processes", "application-only", "--clock-control", "none",
                          "--cache-control", "all", "--csv", "--page", "raw", "--print-units", "base",
                          "--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})$",
                          "--metrics", ",".join(counters), "--log-file", str(log),
                          str(program.parent / "launch_winners"), "--cache", str(arguments.cache),
                          "--worklist", str(listed)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ncu_seconds = time.monotonic() - began
    if ran.returncode != 0:
        sys.exit(f"ncu: {(ran.stderr or ran.stdout).strip()[-600:]}")
    both = run(program, "profile", str(listed), cache, f"--import={log}")
    theirs = sets_of(both, "ncu")

    rows = [{"problem": problem, **row} for problem, one in mine.items() if problem in theirs
            for row in compared(one, theirs[problem])]
    each = [row["seconds"] / row["counted"] for row in ours["problems"] if row.get("counted")]
    said = [subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip().splitlines()[-1]
            for name in (program, ncu)]
    document = {"bench": "counters_vs_ncu", "command": " ".join(["counters_vs_ncu.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(),
                "kernwright": said[0], "ncu": said[1],
                "problems": len(mine), "seconds": seconds, "ncu_seconds": ncu_seconds,
                "seconds_per_kernel": each, "rows": rows}
    arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    table(rows)
    failed = [row["problem"] for row in ours["problems"] if "error" in row] + sorted(set(mine) - set(theirs))
    print(f"{len(mine)} problems, {seconds:.1f} s ({ncu_seconds:.1f} s under ncu); a kernel took "
          f"{sum(each) / max(len(each), 1):.3f} s, the slowest {max(each, default=0):.3f} s")
    for problem in failed:
        print(f"not compared: {problem}")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
