#!/usr/bin/env python3
"""How far the counters of `kernwright profile` are from those of Nsight Compute (ncu): winners of a
worklist under the one and under the other, with free clocks, each several times for the noise of
either. Problems without a record are tuned first.

Both count the same state: an L2 that launch_winners and profile clean by reading. So ncu starts the
program anew for each pass (application replay) and leaves caches alone. As ncu counts by default, it
repeats a kernel itself, and on an H100 about 2.4 MB of lines of its own lie in the L2 then, which
the kernel writes to device memory: it takes 1 us longer, and waits longer for memory.

A counter agrees within 3 % of ncu's value; or within the least difference that can be told, since
ncu prints two decimals and times have steps; or within the noise, as far as ncu's own launches lie
apart. The three are shown apart.

usage: counters_vs_ncu.py --json FILE [--worklist FILE] [--seconds N] [--times N] [--cache DIR]
                          [--bin FOLDER]
"""

import argparse
import csv
import datetime
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

SLACK = 0.03
# What a difference may be in any case: points of a share, nanoseconds, bytes, warps.
LEAST = {"%": 0.5, "ns": 100, "byte": 65536, "warps": 0.05}
# The rate of hits is counted as its parts, as profile does.
PARTS = {"lts__t_sector_hit_rate.pct": ["lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"]}
AGREEMENTS = ["3 %", "least", "noise", "none"]


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


def metrics_of(counters):
    """What ncu is to collect for them."""
    return [metric for name in counters for metric in PARTS.get(name, [name])]


def launches(text, times):
    """The CSV of ncu as one for each of the `times` launches of every winner. Kernels of the same
    name and grid come as often for each of their winners, so they are dealt in turn."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    names = next(csv.reader(lines))
    kinds = names.index("Kernel Name"), names.index("Grid Size")
    dealt = [lines[:2] for _ in range(times)]
    seen = {}
    for line in lines[2:]:
        cells = next(csv.reader([line]))
        kind = tuple(cells[column] for column in kinds)
        dealt[seen.get(kind, 0) % times].append(line)
        seen[kind] = seen.get(kind, 0) + 1
    return ["\n".join(some) + "\n" for some in dealt]


def agreement(ours, theirs, unit):
    """The first of AGREEMENTS that holds for the means of either side."""
    apart = abs(statistics.mean(ours) - statistics.mean(theirs))
    if apart <= SLACK * abs(statistics.mean(theirs)):
        return "3 %"
    if apart <= LEAST[unit]:
        return "least"
    return "noise" if apart <= max(theirs) - min(theirs) else "none"


def noise(values):
    """How far they lie apart, as a share of their mean; nothing where that is 0."""
    mean = statistics.mean(values)
    return (max(values) - min(values)) / abs(mean) if mean else None


def compared(ours, theirs):
    """A row for each counter of each kernel, of several sets of either side."""
    for number, kernel in enumerate(ours[0]["kernels"]):
        for name, value in kernel["values"].items():
            def values(sets):
                each = (one["kernels"][number]["values"].get(name, {}).get("value") for one in sets)
                return [value for value in each if value is not None]
            a, b = values(ours), values(theirs)
            row = {"kernel": kernel["kernel"], "counter": name, "unit": value["unit"], "ours": a, "ncu": b}
            if a and b:
                mean = statistics.mean(b)
                row["difference"] = statistics.mean(a) / mean - 1 if mean else (None if any(a) else 0)
                row["ours_noise"], row["ncu_noise"] = noise(a), noise(b)
                row["agrees"] = agreement(a, b, value["unit"])
            yield row


def percent(values):
    """Their median; "-" where there is none."""
    some = [abs(value) for value in values if value is not None]
    return f"{100 * statistics.median(some):.1f} %" if some else "-"


def table(rows):
    """Prints how each counter agreed, and lines of those that did not."""
    heads = [*AGREEMENTS, "of", "apart", "ours", "ncu"]
    print(f"{'counter':48}" + "".join(f"{head:>8}" for head in heads))
    for name in dict.fromkeys(row["counter"] for row in rows):
        some = [row for row in rows if row["counter"] == name and "agrees" in row]
        cells = [sum(row["agrees"] == one for row in some) for one in AGREEMENTS] + [len(some)]
        cells += [percent(row[key] for row in some) for key in ("difference", "ours_noise", "ncu_noise")]
        short = name.replace("smsp__average_warps_issue_", "").replace(".avg.pct_of_peak", "")
        print(f"{short:48}" + "".join(f"{cell:>8}" for cell in cells))
    print("apart: median difference of the means; ours, ncu: median noise of either side")
    for row in rows:
        if row.get("agrees") == "none":
            print(f"{row['problem'][:44]:44} {row['counter'][:44]:44} "
                  f"{statistics.mean(row['ours']):.5g} {statistics.mean(row['ncu']):.5g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--worklist", type=pathlib.Path, help="default: counters_hopper.json")
    parser.add_argument("--seconds", type=float, default=4, help="of tuning per problem without a record")
    parser.add_argument("--times", type=int, default=3, help="of counting, on either side")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("counters_cache"))
    parser.add_argument("--bin", type=pathlib.Path, help="folder of kernwright and launch_winners")
    arguments = parser.parse_args()
    if arguments.times < 1:
        sys.exit(f"--times is {arguments.times}, it must be 1 or more")
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
    profiles, seconds = [], []
    for _ in range(arguments.times):
        began = time.monotonic()
        profiles.append(run(program, "profile", str(worklist), cache))
        seconds.append(time.monotonic() - began)

    mine = [sets_of(profile, "cupti") for profile in profiles]
    known = [problem for problem in mine[0] if all(problem in sets for sets in mine)]
    kernels = sorted({kernel["kernel"] for name in known for kernel in mine[0][name]["kernels"]})
    counters = sorted({name for problem in known for kernel in mine[0][problem]["kernels"] for name in kernel["values"]})
    log = arguments.json.with_suffix(".csv")
    # Only problems with counters of ours: an ambiguous kernel goes to the first problem that wants it.
    listed = arguments.json.with_suffix(".worklist.json")
    listed.write_text(json.dumps({"problems": known}))
    began = time.monotonic()
    ran = subprocess.run([ncu, "--target-processes", "application-only", "--replay-mode", "application",
                          "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw",
                          "--print-units", "base", "--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})$",
                          "--metrics", ",".join(metrics_of(counters)), "--log-file", str(log),
                          str(program.parent / "launch_winners"), "--cache", str(arguments.cache),
                          "--worklist", str(listed), "--times", str(arguments.times)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ncu_seconds = time.monotonic() - began
    if ran.returncode != 0:
        sys.exit(f"ncu: {(ran.stderr or ran.stdout).strip()[-600:]}")
    theirs = []
    for number, text in enumerate(launches(log.read_text(errors="replace"), arguments.times)):
        one = arguments.json.with_suffix(f".{number}.csv")
        one.write_text(text)
        theirs.append(sets_of(run(program, "profile", str(listed), cache, f"--import={one}"), "ncu"))

    both = [problem for problem in known if all(problem in sets for sets in theirs)]
    rows = [{"problem": problem, **row} for problem in both
            for row in compared([sets[problem] for sets in mine], [sets[problem] for sets in theirs])]
    each = [row["seconds"] / row["counted"] for profile in profiles for row in profile["problems"] if row.get("counted")]
    said = [subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip().splitlines()[-1]
            for name in (program, ncu)]
    document = {"bench": "counters_vs_ncu", "command": " ".join(["counters_vs_ncu.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(),
                "kernwright": said[0], "ncu": said[1],
                "problems": len(both), "times": arguments.times, "seconds": seconds, "ncu_seconds": ncu_seconds,
                "seconds_per_kernel": each, "rows": rows}
    arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    table(rows)
    failed = [row["problem"] for row in profiles[0]["problems"] if row["problem"] not in both]
    print(f"{len(both)} problems, {statistics.mean(seconds):.1f} s each time ({ncu_seconds:.1f} s under ncu); a kernel "
          f"took {sum(each) / max(len(each), 1):.3f} s, the slowest {max(each, default=0):.3f} s")
    for problem in failed:
        print(f"not compared: {problem}")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
