#!/usr/bin/env python3
"""Compares attention with its peers: PyTorch's SDPA with each of its backends, FlexAttention compiled,
and FlashAttention 3 and 4, FlashInfer and cuDNN's frontend where they can be imported. All run in one
process by the protocol of rows_vs_pytorch.py: CUDA graph replays over rotating buffers larger than
three times the L2, on normal data, in turn, in a new random order every round. If a peer has several
ways to run a problem, one is selected in rounds that do not count. Ours is called through the C ABI;
it is tuned first if the cache has no exact record of the problem.

"first_us" is the answer to the first question about a problem, before it is tuned. "error" is the error
of the worst row, |o - r| / |r|, against a reference in fp64 on up to 64 queries of each sequence, or
the error of a logarithm or of a cache's new entry, if it is larger. The status is 1 if ours is above
the tolerance of its dtype, and the line says WRONG. Flops and bytes count what queries see. A peer that
does not run a problem has a row with the reason and no time. So has one that crashes: the run goes on
without it in a new process. So has a problem that kernwright refuses: its peer is "unsupported". Things
that a peer needs besides the tensors of the problem, such as a plan or a mask, are made before the
clock runs, but pages are not gathered: a peer reads them in their places, or not at all. A peer that
takes no fp8 gets the same numbers in 16 bits, made before the clock runs, and its note says so.

A line of stdout ends with the seconds that its problem took. A run continues where the last one
stopped: problems that have rows of this commit are left out.

usage: attention_vs_peers.py --json FILE [--shapes NUMBER|CLASS,...] [--random N [--seed S]]
                             [--seconds N] [--budget N] [--cache DIR]
"""

import argparse
import datetime
import gc
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import rows_vs_pytorch as rows
from attention_peers import Peer, makers
from attention_problems import (SHAPES, Shape, draw, random_shapes, reference, schedule_problem,
                                tokens_first, wanted, widened, worst_logarithm, worst_new_entry,
                                worst_row)

ROUNDS = 15
EVERYTHING = "everything"  # crashed, and not one way alone
STARTED = "ATTENTION_VS_PEERS_STARTED"  # when, on the monotonic clock, the first process of a run began
# For the worst row. Weights and result are rounded to the dtype, which costs a row about one unit.
TOLERANCE = {"bf16": 2e-2, "fp16": 4e-3, "fp8_e4m3": 0.13}


def is_wrong(row):
    """Returns whether ours is above the tolerance, as it was tuned or as it was first answered."""
    limit = TOLERANCE[rows.parse_problem(row["problem"])[1]["dtype"]]
    return any(error is not None and not error <= limit for error in (row["error"], row.get("first_error")))


def make_rows(problem, name, shape, result, commit):
    """One row per peer. `result` has "samples", {"ours": [us, ...], "first": ..., PEER: ...}, "errors"
    by the same names, "reasons" of those that were not timed, "notes" of those that were, and
    "configuration" and "seconds"."""
    middle = {label: statistics.median(values) for label, values in result["samples"].items()}
    ours, first = middle.get("ours"), middle.get("first")
    shared = {"class": name, "ours_us": ours, "first_us": first,
              "ours_tflops": shape.flops() / ours / 1e6 if ours else None,
              "ours_gbps": shape.bytes() / ours / 1e3 if ours else None,
              "error": result["errors"].get("ours"), "first_error": result["errors"].get("first"),
              "configuration": result["configuration"],
              "seconds": result["seconds"], "date": datetime.date.today().isoformat(),
              "kernwright": commit}
    peers = [*(label for label in middle if label not in ("ours", "first")),
             *(label for label in result["reasons"] if label not in (*middle, "ours", "first"))]
    return [{"problem": problem, "peer": peer, "peer_us": middle.get(peer),
             "ratio": middle[peer] / ours if ours and peer in middle else None,
             "peer_error": result["errors"].get(peer),
             "note": result["notes"].get(peer, result["reasons"].get(peer, "")), **shared}
            for peer in peers]


def unsupported_row(problem, name, reason, commit):
    nothing = dict.fromkeys(("ours_us", "first_us", "peer_us", "ratio", "error", "first_error", "peer_error",
                             "configuration"))
    return {"problem": problem, "class": name, "peer": "unsupported", "note": reason, **nothing,
            "date": datetime.date.today().isoformat(), "kernwright": commit}


def table_line(number, new, seconds):
    """Returns the line of stdout about a problem: the best peer that is right, and the others."""
    first = new[0]
    timed = sorted((row for row in new if row["peer_us"] and not row["note"].startswith("wrong")),
                   key=lambda row: row["peer_us"])
    if first["ours_us"] is None:
        return f"{number:4d} {first['class']} {first['problem']}: {first['peer']}: {first['note']}"
    peers = ", ".join(f"{row['peer']} {row['peer_us']:.1f}" for row in timed) or "no peer"
    best = f"{timed[0]['ratio']:.3f}" if timed else "-"
    before = f"{first['first_us']:.1f}" if first["first_us"] else "-"
    return (f"{number:4d} {first['class']} {first['problem'][10:]}: {first['ours_us']:.1f} us"
            f" (first {before}), {first['ours_tflops']:.0f} TFLOP/s, {first['ours_gbps']:.0f} GB/s,"
            f" {best} of the best of {peers}; error {first['error']:.1e}"
            f"{' WRONG' if is_wrong(first) else ''}; {seconds:.0f} s")


def reason_of(error):
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


# Inputs and what comes out of them.

class Crashed(Exception):
    """A way to run a problem that left the process without a device."""

    def __init__(self, label, error):
        super().__init__(reason_of(error))
        self.label = label


def is_lost(torch):
    """Returns whether an error on the device has ended all use of it by this process."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


# Ours.

class Baked:
    """A kernel baked once for each set. The counters that its workspace keeps are zeroed once then, while a
    launch zeroes them each time."""

    def __init__(self, torch, kernel):
        self.torch, self.kernel, self.made = torch, kernel, {}

    def __call__(self, t):
        if id(t) not in self.made:
            held, results = rows.operands(self.torch, self.kernel, t)
            self.made[id(t)] = self.kernel.bake(*held), results
        baked, results = self.made[id(t)]
        if self.torch.cuda.is_current_stream_capturing():
            baked.add_to_capture()
        else:
            baked()
        return results

    def release(self):
        self.made.clear()


# Measuring.

def rounds_for(contestants, most=ROUNDS, seconds=8):
    """As many rounds as fit, and at least five."""
    one = sum(contestant.sample() * contestant.calls for contestant in contestants.values()) / 1e6
    return max(5, min(most, int(seconds / max(one, 1e-6))))


def measure(torch, library, newcomer, problem, seconds, crashed):
    """Returns the arguments of make_rows for one problem. `newcomer` is a library whose cache is empty;
    `crashed` has the ways that are known to crash, with the reason. Raises Crashed for another one."""
    started = time.monotonic()
    shape = Shape(problem)
    kernel, first = library.kernel(problem, seconds), newcomer.service.kernel(problem)
    description = kernel.summary
    arguments = description["arguments"]
    sets = [draw(torch, shape, arguments) for _ in range(rows.set_count(rows.tensor_bytes(arguments)))]
    if shape.flags["schedule"] == "given":
        share_out = library.function(torch, library.service.kernel(schedule_problem(shape)))
        for t in sets:
            t["work"] = share_out(t)[0]
    before = widened(torch, sets[0], shape.wide_dtype)
    expected = reference(torch, shape, before)
    baked = Baked(torch, kernel)
    ours = {"ours:launched": library.function(torch, kernel), "ours:baked": baked,
            "first:launched": newcomer.function(torch, first)}
    made = {label: lambda call=call: Peer(call) for label, call in ours.items()}
    torch.compiler.reset()
    contestants, errors, reasons, notes, wide = {}, {}, {}, {}, set()
    with torch.no_grad():
        for label, maker in {**made, **makers(torch, shape)}.items():
            name = label.split(":")[0]
            if label in crashed:
                reasons.setdefault(name, []).append(crashed[label])
                continue
            if label not in made and shape.beyond_peers:
                reasons[name] = [f"no peer is called with {', '.join(shape.beyond_peers)} here"]
                continue
            try:
                peer = maker()
                is_wide = shape.kv == "fp8_e4m3" and not label.startswith(("ours", "first")) and not (
                    label.startswith("cudnn_frontend") and shape.dtype == shape.kv)
                if is_wide:
                    peer = peer.of_wide_inputs(torch, shape.wide_dtype)
                    wide.add(label)
                prepared = [peer.prepare(t) for t in sets]
                result = peer.call(prepared[0])
                o, *more = result if isinstance(result, tuple) else (result,)
                o = peer.finish(o)
                if label in made:
                    o = tokens_first(shape, o)
                errors[label] = worst_row(torch, shape, o, expected)
                if label in made and shape.flags["lse"] != "none":
                    errors[label] = max(errors[label], worst_logarithm(torch, shape, more[0], expected))
                if label in made and shape.append != "none":
                    errors[label] = max(errors[label], worst_new_entry(torch, shape, sets[0], before))
                contestants[label] = rows.Contestant(torch, peer.call, prepared)
            except Exception as error:  # whatever keeps a peer from this problem is a row, no more
                if is_lost(torch):
                    raise Crashed(label, error) from error
                reasons.setdefault(name, []).append(reason_of(error))
        if not any(label.startswith("ours:") for label in contestants):
            raise RuntimeError("; ".join(reasons["ours"]))
        limit = TOLERANCE[shape.dtype]
        right = {label.split(":")[0] for label in contestants if errors[label] <= limit}
        contestants = {label: contestant for label, contestant in contestants.items()
                       if errors[label] <= limit or label.split(":")[0] not in right}
        chooser = random.Random(problem)
        chosen = rows.select(contestants, chooser)
        samples = rows.take_rounds(chosen, rounds_for(chosen), chooser)
    names = {contestant: label for label, contestant in contestants.items()}
    ways = {name: names[contestant] for name, contestant in chosen.items()}
    for name, label in ways.items():
        notes[name] = label.split(":")[1] + (" of 16-bit inputs" if label in wide else "")
        if errors[label] > limit:
            notes[name] = f"wrong: {notes[name]}"
    result = {"samples": samples, "errors": {name: errors[label] for name, label in ways.items()},
              "reasons": {name: "; ".join(dict.fromkeys(said)) for name, said in reasons.items()},
              "notes": notes, "seconds": 0.0,
              "configuration": f"{description['template']} {description['configuration']}"}
    contestants.clear()
    chosen.clear()
    gc.collect()
    baked.release()
    result["seconds"] = time.monotonic() - started
    return shape, result


def refusal(program, problem):
    """Why kernwright takes this for no problem of its own, or None."""
    asked = subprocess.run([program, "show", "--sku", "h200", *problem.split()], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    return asked.stderr.strip().splitlines()[0] if asked.returncode == 2 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", help="only these numbers and classes of the list, as 1,5,J")
    parser.add_argument("--random", type=int, default=0, help="so many other shapes of the same classes")
    parser.add_argument("--seed", type=int, default=1, help="of --random")
    parser.add_argument("--seconds", type=float, default=6, help="of tuning per problem without a record")
    parser.add_argument("--budget", type=float, default=560, help="seconds after which no problem is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
    started = float(os.environ.get(STARTED, time.monotonic()))

    listed = random_shapes(arguments.random, arguments.seed) if arguments.random else SHAPES
    only = arguments.shapes and arguments.shapes.split(",")
    problems = [(number, *entry) for number, entry in listed.items() if wanted(number, entry[0], only)]
    try:
        import torch

        import kernwright  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    warnings.simplefilter("ignore")  # why a peer refuses is in its row
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77

    commit = rows.package_commit()
    device = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.split() if shutil.which(query[0]) else []
    document = {"bench": "attention_vs_peers", "command": " ".join(["attention_vs_peers.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "driver": "".join(driver[:1]),
                           "sm_count": device.multi_processor_count, "torch": torch.__version__,
                           "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}, "rows": []}
    crashes = {}  # problem -> way -> reason, of this commit
    if arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        document["rows"] = before["rows"]
        if before["kernwright"] == commit:
            crashes = before.get("crashes", {})
    document["crashes"] = crashes

    def write():
        temporary = arguments.json.with_suffix(".partial")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(temporary, arguments.json)

    failed = False
    with tempfile.TemporaryDirectory() as empty:
        library = rows.Library(arguments.cache)
        newcomer = rows.Library(empty)
        for number, name, problem in problems:
            crashed = crashes.get(problem, {})
            if rows.has_current(document["rows"], problem, commit) or EVERYTHING in crashed:
                failed = failed or EVERYTHING in crashed or any(
                    is_wrong(row) for row in document["rows"] if row["problem"] == problem)
                continue
            if time.monotonic() - started > arguments.budget:
                print("the budget is spent: run again to go on")
                break
            gc.collect()
            torch.cuda.empty_cache()
            begun = time.monotonic()
            reason = refusal(rows.package_tool(), problem)
            if reason:
                new = [unsupported_row(problem, name, reason, commit)]
            else:
                try:
                    shape, result = measure(torch, library, newcomer, problem, arguments.seconds, crashed)
                except Exception as error:  # one problem must not cost the visit
                    said = str(error) if isinstance(error, Crashed) else reason_of(error)
                    label = error.label if isinstance(error, Crashed) else EVERYTHING
                    print(f"{number:4d} {name} {problem}: {label}: {said}", flush=True)
                    if is_lost(torch):  # a new process goes on, without what has crashed
                        crashes.setdefault(problem, {})[label] = said
                        write()
                        os.environ[STARTED] = str(started)
                        os.execv(sys.executable, [sys.executable, *sys.argv])
                    failed = True
                    continue
                new = make_rows(problem, name, shape, result, commit)
                failed = failed or any(map(is_wrong, new))
            for row in new:
                document["rows"] = rows.merge(document["rows"], row)
            write()
            print(table_line(number, new, time.monotonic() - begun), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
