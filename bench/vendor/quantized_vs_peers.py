#!/usr/bin/env python3
"""Compares quantized_matmul with its peers: Marlin and Machete of vLLM 0.33, Humming, PyTorch's
_weight_int4pack_mm, cuBLAS and our own matmul with plain weights, and dequantize_weights before matmul.
All run in one process by the protocol of rows_vs_pytorch.py: CUDA graph replays over rotating buffers
larger than three times the L2, on codes that are all as probable, in turn, in a new random order every
round. Ours is called by the Python package, launched and baked, of which one is selected in rounds that do
not count. It is what the cache answers, or what is tuned if the cache has no exact record and --seconds is
not 0.

"error" is the root of the mean square of the difference to a product in fp64 of the exact weights, over
that of the product. "error_ratio" compares it with the least of the peers, and is above 1.02 for ours if a
peer is more exact. The status is 1 if an error of ours is above the tolerance of its dtype, and the line
says WRONG. A wrong peer is no bar. "line_us" is 2.3 us + the longer of bytes / 4.35 TB/s and flops / 700
TFLOP/s. Peers lay out their weights before the clock runs. A peer that does not run a problem has a row
with the reason and no time. So has one that crashes, or that is not ready within 20 s, or whose
kernels do not end: the run goes on without it in a new process.

The folder of --peers has the unpacked wheels of vllm and humming-kernels; of vllm,
_C_stable_libtorch.abi3.so is enough. All medians of rounds are in "samples". A run continues where the
last one stopped: problems that have rows of this commit are left out.

usage: quantized_vs_peers.py --json FILE [--shapes NxK,...] [--tokens M,...] [--random N [--seed S]]
                             [--weights "group=128 dtype=bf16 zero=code"] [--seconds N] [--budget N]
                             [--cache DIR] [--peers DIR]
"""

import argparse
import concurrent.futures
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
import threading
import time
import warnings

import quantized_peers as peers
import rows_vs_pytorch as rows
from attention_peers import Peer
from attention_vs_peers import EVERYTHING, Baked, Crashed, is_lost, reason_of, rounds_for

ROUNDS = 15
PATIENCE = 20  # seconds in which a way must be ready, and a sample be taken
STARTED = "QUANTIZED_VS_PEERS_STARTED"  # when, on the monotonic clock, the first process of a run began
# Results and weights are rounded to the dtype. Machete rounds weights with zero points twice.
TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3}
WORST = 10  # times the tolerance, for the worst element over the root of the mean square of all


def bar_of(m):
    """Returns the ratio to the best peer that is wanted."""
    return 1.3 if m <= 16 else 1.25 if m <= 64 else 1.1 if m <= 256 else 1.0


def is_wrong(error, dtype):
    """Returns whether an error, of the root of the mean square and of the worst element, is above the
    tolerance. NaN is."""
    return not (error[0] <= TOLERANCE[dtype] and error[1] <= WORST * TOLERANCE[dtype])


def make_rows(shape, result, commit):
    """One row per peer. `result` has "samples", {"ours": [us, ...], PEER: ...}, "errors" by the same names,
    "reasons" of those that were not timed, "notes" of those that were, "configuration" and "match"."""
    middle = {label: statistics.median(values) for label, values in result["samples"].items()}
    ours, errors = middle["ours"], result["errors"]
    right = [errors[label][0] for label in middle if label != "ours" and not is_wrong(errors[label], shape.dtype)]
    shared = {"ours_us": ours, "line_us": shape.line_us(), "bar": bar_of(shape.m), "error": errors["ours"][0],
              "error_ratio": errors["ours"][0] / min(right) if right else None,
              "wrong": is_wrong(errors["ours"], shape.dtype), "ours_tflops": shape.flops() / ours / 1e6,
              "ours_gbps": shape.bytes() / ours / 1e3, "configuration": result["configuration"],
              "match": result["match"], "date": datetime.date.today().isoformat(), "kernwright": commit}
    new = []
    for peer in dict.fromkeys((*middle, *result["reasons"])):
        if peer != "ours":
            error = errors.get(peer)
            wrong = "wrong: " if error and is_wrong(error, shape.dtype) else ""
            new.append({"problem": shape.problem, "peer": peer, "peer_us": middle.get(peer),
                        "ratio": middle[peer] / ours if peer in middle else None,
                        "peer_error": error and error[0],
                        "note": wrong + result["notes"].get(peer, result["reasons"].get(peer, "")), **shared})
    return new


def bars(new):
    """The rows of peers that were timed and are right, the fastest first."""
    return sorted((row for row in new if row["peer_us"] and not row["note"].startswith("wrong")),
                  key=lambda row: row["peer_us"])


def table_line(new):
    first, timed = new[0], bars(new)
    best = f"{timed[0]['ratio']:.2f} of {timed[0]['peer']} (bar {first['bar']:.2f})" if timed else "no peer"
    others = ", ".join(f"{row['peer']} {row['peer_us']:.1f}" for row in timed)
    error_ratio = f" ({first['error_ratio']:.2f} of the least)" if first["error_ratio"] else ""
    missing = "".join(f"; no {row['peer']}: {row['note']}" for row in new if not row["peer_us"])
    wrong = "".join(f"; {row['peer']} is wrong: {row['peer_error']:.1e}" for row in new
                    if row["note"].startswith("wrong"))
    return (f"{first['problem'][17:]}: {first['ours_us']:.2f} us, {first['ours_us'] / first['line_us']:.2f} of the"
            f" line {first['line_us']:.1f}, {best}; {others}; error {first['error']:.2e}{error_ratio}"
            f"{' WRONG' if first['wrong'] else ''}; {first['match']}, {first['configuration']}{missing}{wrong}")


# Measuring.

def errors_of(torch, result, expected):
    """Returns the root of the mean square of the difference and the worst element, both over the root of the
    mean square of what is expected."""
    difference, size = result.double() - expected, expected.square().mean().sqrt()
    return (difference.square().mean().sqrt() / size).item(), (difference.abs().max() / size).item()


class Watch:
    """Calls `give_up(label)` in a thread of its own if a way is not ready in time: a call that hangs in the
    driver cannot be ended in another way."""

    def __init__(self, give_up, patience=PATIENCE):
        self.give_up, self.patience, self.timer = give_up, patience, None

    def begin(self, label):
        self.end()
        self.timer = threading.Timer(self.patience, self.give_up, [label])
        self.timer.daemon = True
        self.timer.start()

    def end(self):
        if self.timer:
            self.timer.cancel()


class Watched:
    """A contestant whose samples must be taken in time."""

    def __init__(self, contestant, watch, label):
        self.contestant, self.watch, self.label, self.calls = contestant, watch, label, contestant.calls

    def sample(self):
        self.watch.begin(self.label)
        try:
            return self.contestant.sample()
        finally:
            self.watch.end()


def measure(torch, library, problem, seconds, missing, crashed, watch):
    """Returns a shape and the arguments of make_rows for it. `missing` has peers that are not there, and
    `crashed` the ways that are known to crash, with the reason. Raises Crashed for another one."""
    shape = peers.Shape(problem)
    kernel = library.kernel(problem, seconds) if seconds else library.service.kernel(problem)
    summary = kernel.summary
    ours = peers.Ours(torch, library, shape)
    moved = rows.tensor_bytes(summary["arguments"])
    sets = [peers.draw(torch, shape) for _ in range(rows.set_count(moved))]
    expected = sets[0]["a"].double() @ peers.dequantized(torch, shape, sets[0]).double().t()
    baked = [Baked(torch, kernel), Baked(torch, ours.product)]
    made = {"ours:launched": lambda: Peer(library.function(torch, kernel), ours.packed),
            "ours:baked": lambda: Peer(baked[0], ours.packed),
            "matmul:launched": lambda: Peer(library.function(torch, ours.product), ours.plain),
            "matmul:baked": lambda: Peer(baked[1], ours.plain),
            "dequantize_matmul": ours.unfused}
    contestants, errors, reasons = {}, {}, {}
    with torch.no_grad():
        for label, maker in {**made, **peers.makers(torch, shape)}.items():
            name = label.split(":")[0]
            reason = missing.get(name, crashed.get(label))
            if reason:
                reasons[name] = reason
                continue
            watch.begin(label)
            try:
                peer = maker()
                prepared = [peer.prepare(t) for t in sets]
                errors[label] = errors_of(torch, peer.call(prepared[0])[0], expected)
                contestants[label] = Watched(rows.Contestant(torch, peer.call, prepared), watch, label)
            except Exception as error:  # whatever keeps a peer from this problem is a row, no more
                if is_lost(torch):
                    raise Crashed(label, error) from error
                reasons[name] = reason_of(error)
        watch.end()
        if not any(label.startswith("ours:") for label in contestants):
            raise RuntimeError(reasons["ours"])
        chooser = random.Random(problem)
        chosen = rows.select(contestants, chooser)
        samples = rows.take_rounds(chosen, rounds_for(chosen, ROUNDS), chooser)
    ways = {name: next(label for label in contestants if contestants[label] is contestant)
            for name, contestant in chosen.items()}
    result = {"samples": samples, "errors": {name: errors[label] for name, label in ways.items()},
              "reasons": reasons, "notes": {name: label.partition(":")[2] for name, label in ways.items()},
              "configuration": f"{summary['template']} {summary['configuration']}", "match": summary["match"]}
    for kept in baked:
        kept.release()
    return shape, result


def compile_humming(torch, problems):
    """Compiles Humming's kernels of all problems at once, which it would do one after another. Returns why
    some failed, which their rows say too."""
    def reason(call):
        try:
            call()
        except Exception as error:
            return reason_of(error)
        return None

    layers = []
    reasons = [reason(lambda: layers.append(peers.Humming(torch, peers.Shape(problem)))) for problem in problems]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons.extend(pool.map(lambda layer: reason(layer.compile), layers))
    return list(dict.fromkeys(filter(None, reasons)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", help="n and k instead of the list's, as 6144x4096,4096x4096")
    parser.add_argument("--tokens", help="m instead of the list's, as 1,16")
    parser.add_argument("--weights", default=peers.WEIGHTS, help=f"the rest of the problems; default: {peers.WEIGHTS}")
    parser.add_argument("--random", type=int, default=0, help="so many other n and k, drawn log-uniformly")
    parser.add_argument("--seed", type=int, default=1, help="of --random")
    parser.add_argument("--seconds", type=float, default=0, help="of tuning per problem without a record")
    parser.add_argument("--budget", type=float, default=560, help="seconds after which no problem is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    parser.add_argument("--peers", type=pathlib.Path, help="default: $KERNWRIGHT_PEERS",
                        default=os.environ.get("KERNWRIGHT_PEERS") or None)
    arguments = parser.parse_args()
    started = float(os.environ.get(STARTED, time.monotonic()))

    shapes = peers.random_sizes(arguments.random, arguments.seed) if arguments.random else peers.SHAPES
    if arguments.shapes:
        shapes = [tuple(map(int, text.split("x"))) for text in arguments.shapes.split(",")]
    tokens = [int(m) for m in arguments.tokens.split(",")] if arguments.tokens else peers.TOKENS
    problems = peers.listed(shapes, tokens, arguments.weights)
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
    document = {"bench": "quantized_vs_peers", "command": " ".join(["quantized_vs_peers.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "driver": "".join(driver[:1]),
                           "sm_count": device.multi_processor_count, "torch": torch.__version__,
                           "cuda": torch.version.cuda}, "rows": [], "samples": {}}
    crashes = {}  # problem -> way -> reason, of this commit
    if arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        document["rows"], document["samples"] = before["rows"], before["samples"]
        if before["kernwright"] == commit:
            crashes = before.get("crashes", {})
    document["crashes"] = crashes

    def write():
        temporary = arguments.json.with_suffix(".partial")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(temporary, arguments.json)

    def restart(problem, label, reason):
        """Goes on in a new process, without what has crashed."""
        crashes.setdefault(problem, {})[label] = reason
        write()
        os.environ[STARTED] = str(started)
        os.execv(sys.executable, [sys.executable, *sys.argv])

    def go_on_without(problem, label):
        print(f"{problem}: {label}: not ready within {PATIENCE} s", flush=True)
        restart(problem, label, f"not ready within {PATIENCE} s")

    problems = [problem for problem in problems if not rows.has_current(document["rows"], problem, commit)
                and EVERYTHING not in crashes.get(problem, {})]
    missing = {}
    reason = peers.load_vllm(torch, arguments.peers)
    if reason:
        missing = {"marlin": reason, "machete": reason}
    if arguments.peers:
        sys.path.insert(0, str(arguments.peers))
    begun = time.monotonic()
    for reason in compile_humming(torch, problems):
        print(f"humming: {reason}")
    print(f"humming's kernels took {time.monotonic() - begun:.0f} s", flush=True)

    failed = False
    library = rows.Library(arguments.cache)
    for problem in problems:
        if time.monotonic() - started > arguments.budget:
            print("the budget is spent: run again to go on")
            break
        gc.collect()
        torch.cuda.empty_cache()
        begun = time.monotonic()
        watch = Watch(lambda label, problem=problem: go_on_without(problem, label))
        try:
            shape, result = measure(torch, library, problem, arguments.seconds, missing, crashes.get(problem, {}),
                                    watch)
        except Exception as error:  # one problem must not cost the visit
            said = str(error) if isinstance(error, Crashed) else reason_of(error)
            label = error.label if isinstance(error, Crashed) else EVERYTHING
            print(f"{problem}: {label}: {said}", flush=True)
            if is_lost(torch):
                restart(problem, label, said)
            watch.end()
            failed = True
            continue
        new = make_rows(shape, result, commit)
        for row in new:
            document["rows"] = rows.merge(document["rows"], row)
        document["samples"][problem] = result["samples"]
        write()
        print(f"{table_line(new)}; {time.monotonic() - begun:.0f} s", flush=True)
    found = [row for row in document["rows"] if row["kernwright"] == commit]
    return 1 if failed or any(row["wrong"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
