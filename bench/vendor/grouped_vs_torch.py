#!/usr/bin/env python3
"""Compares grouped_matmul with its peers: torch._grouped_mm, for fp8 torch._scaled_grouped_mm, a graph
of one product for each group (cuBLASLt through torch.mm, for 16 bits), and, to see what grouping costs,
the dense product of the same rows. All run in one process by the protocol of rows_vs_pytorch.py: CUDA
graph replays over weights and sizes of groups that together pass three times the L2, on normal data, in
turn, in a new random order every round. Ours is called by the Python package; it is tuned first if the
cache has no exact record of the problem.

"dense" has the weights of one group for all rows, and is no peer: a mixture cannot be computed so.
"torch_mm" knows the sizes of the groups when its graph is made, which an engine does not. With a
gate the peers are followed by SiLU and the product with the other half, compiled by torch.compile.
Ours has scales of blocks, and a peer one a row and a column; all are 1.

A run continues where the last one stopped: problems that have rows of this commit are left out.

usage: grouped_vs_torch.py --json FILE [--shapes NUMBER,...] [--random N [--seed S]] [--seconds N]
                           [--budget N] [--cache DIR]
"""

import argparse
import datetime
import gc
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time

import rows_vs_pytorch as rows

ROUNDS = 15
LOOP_GROUPS = 64  # more groups make graphs of thousands of products
TOLERANCE = 2e-2  # between two right results, which round once and sum in their own order
DENSE = "dense"

# n and k of the experts' products: gates and what they open, and the way back.
MODELS = {"qwen3": ((1536, 2048), (2048, 768)), "deepseek_v3": ((4096, 7168), (7168, 2048)),
          "mixtral": ((28672, 4096), (4096, 14336))}


# Pure parts, which the tests run without a GPU.

def problem_text(groups, rows_, n, k, more="", dtype="dtype=bf16"):
    return f"grouped_matmul groups={groups} rows={rows_} n={n} k={k} {dtype} {more}".strip()


def listed(model, product, groups, rows_of_group, kind):
    n, k = MODELS[model][product]
    return kind, problem_text(groups, max(1, int(groups * rows_of_group)), n, k)


SHAPES = dict(enumerate((
    listed("qwen3", 0, 128, 1 / 16, "even"), listed("qwen3", 1, 128, 1 / 16, "even"),
    listed("qwen3", 0, 128, 1, "skewed"), listed("qwen3", 1, 128, 8, "skewed"),
    listed("qwen3", 0, 128, 16, "skewed"), listed("qwen3", 1, 64, 64, "skewed"),
    listed("qwen3", 0, 128, 64, "even"), listed("qwen3", 0, 64, 256, "skewed"),
    listed("qwen3", 0, 128, 512, "skewed"), listed("qwen3", 1, 128, 512, "even"),
    listed("deepseek_v3", 1, 256, 4, "skewed"), listed("deepseek_v3", 0, 64, 16, "skewed"),
    listed("deepseek_v3", 0, 8, 32, "skewed"), listed("deepseek_v3", 1, 64, 64, "skewed"),
    listed("deepseek_v3", 0, 64, 128, "even"), listed("deepseek_v3", 1, 8, 256, "skewed"),
    listed("deepseek_v3", 0, 8, 1024, "even"), listed("deepseek_v3", 0, 8, 4096, "skewed"),
    listed("mixtral", 0, 8, 2, "even"), listed("mixtral", 1, 8, 16, "even"),
    listed("mixtral", 0, 8, 128, "skewed"), listed("mixtral", 1, 8, 128, "even"),
    listed("mixtral", 0, 8, 1024, "even"), listed("mixtral", 1, 8, 1024, "skewed")), 1))


def random_shapes(count, seed):
    """`count` other shapes, like SHAPES."""
    chosen = random.Random(seed)
    shapes = {}
    while len(shapes) < count:
        groups = chosen.choice([4, 8, 16, 32, 64, 128, 256])
        n, k = 256 * chosen.randint(2, 28), 128 * chosen.randint(4, 56)
        rows_of_group = 2 ** chosen.uniform(-2, 11)
        if groups * n * k * 2 > 8e9 or groups * rows_of_group * (n + k) * 2 > 8e9:
            continue
        gate = chosen.choice(["", "", "activation=silu gate=stacked"])
        dtype = chosen.choice(["dtype=bf16", "dtype=bf16", "dtype=fp8_e4m3 out=bf16"])
        entry = (chosen.choice(["even", "skewed"]),
                 problem_text(groups, max(1, int(groups * rows_of_group)), n // 2 if gate else n, k, gate, dtype))
        if entry not in SHAPES.values() and entry not in shapes.values():
            shapes[101 + len(shapes)] = entry
    return shapes


def group_ends(groups, rows_, kind, chooser):
    """Returns the ends of the rows of each group: even, or as shared out by a router that prefers some experts.
    Fewer rows than groups go to different groups."""
    if rows_ < groups:
        filled = sorted(chooser.sample(range(groups), rows_))
        return [sum(1 for group in filled if group <= g) for g in range(groups)]
    shares = [1.0 if kind == "even" else math.exp(0.5 * chooser.gauss(0, 1)) for _ in range(groups)]
    ends, share = [], 0.0
    for one in shares:
        share += one
        ends.append(min(rows_, int(rows_ * share / sum(shares) + 1e-9)))
    return [*ends[:-1], rows_]


def make_rows(problem, kind, flops, samples, notes, configuration, commit):
    """One row per peer of `samples`, {"ours": [us, ...], PEER: ...}."""
    middle = {name: statistics.median(values) for name, values in samples.items()}
    return [{"problem": problem, "class": kind, "peer": name, "ours_us": middle["ours"], "peer_us": us,
             "ratio": us / middle["ours"], "ours_tflops": flops / middle["ours"] / 1e6,
             "note": notes.get(name, ""), "configuration": configuration,
             "date": datetime.date.today().isoformat(), "kernwright": commit}
            for name, us in middle.items() if name != "ours"]


def table_line(number, new):
    first = new[0]
    peers = ", ".join(f"{row['peer']} {row['ratio']:.2f}{' ' + row['note'] if row['note'] else ''}"
                      for row in sorted(new, key=lambda row: row["ratio"]))
    return (f"{number:4d} {first['class']} {first['problem'][15:]}: {first['ours_us']:.1f} us,"
            f" {first['ours_tflops']:.0f} TFLOP/s; {peers}")


def summary(found):
    """The geometric mean and the least ratio to the best peer of each problem."""
    best = {}
    for row in found:
        if row["peer"] != DENSE:
            best[row["problem"], row["class"]] = min(row["ratio"], best.get((row["problem"], row["class"]), math.inf))
    if not best:
        return "no peer"
    mean = math.exp(sum(map(math.log, best.values())) / len(best))
    return f"{mean:.3f} times the best peer over {len(best)} problems, the least {min(best.values()):.3f}"


# Measuring.

def make_sets(torch, values, kind, chooser):
    """Returns inputs whose weights that are read pass three times the L2. Sets may share weights if their
    groups differ."""
    groups, count, n, k = (values[name] for name in ("groups", "rows", "n", "k"))
    stack = 2 if values.get("gate") == "stacked" else 1
    dtype, size = rows.torch_dtype(torch, values["dtype"]), rows.BYTES[values["dtype"]]
    read = min(groups, count) * stack * n * k * size
    wanted = rows.set_count(read + count * (2 * n + k * size))
    copies = min(wanted, -(-3 * rows.L2_BYTES // (groups * stack * n * k * size)))

    def drawn(length):  # in parts, since fp8 is drawn in 16 bits
        whole = torch.empty(length, k, device="cuda", dtype=dtype)
        for part in whole.split(1 << 16):
            part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.bfloat16))
        return whole

    weights = [drawn(groups * stack * n) for _ in range(copies)]
    blocks = -(-k // 128)
    ones = {name: torch.ones(*extent, device="cuda") for name, extent in (
        ("scale_a", (blocks, count)), ("scale_b", (groups * -(-stack * n // 128), blocks)),
        ("of_rows", (count,)), ("of_columns", (groups, stack * n)))} if size == 1 else {}
    sets = []
    for i in range(wanted):
        ends = group_ends(groups, count, kind, chooser)
        sets.append({"a": drawn(count), "b": weights[i % copies], **ones,
                     "ends": torch.tensor(ends, dtype=torch.int32, device="cuda"), "host": ends})
    return sets


def peers(torch, values):
    groups, n = values["groups"], values["n"]
    gate = values.get("gate") == "stacked"
    wide = 2 * n if gate else n
    finish = lambda y: y
    if gate:
        finish = torch.compile(lambda y: torch.nn.functional.silu(y[:, :n]) * y[:, n:], dynamic=False)

    def grouped(t):
        b = t["b"].view(groups, wide, -1).transpose(1, 2)
        if "scale_a" not in t:
            return (finish(torch._grouped_mm(t["a"], b, offs=t["ends"])),)
        return (finish(torch._scaled_grouped_mm(t["a"], b, t["of_rows"], t["of_columns"], offs=t["ends"],
                                                out_dtype=torch.bfloat16)),)

    def dense(t):
        b = t["b"][:wide].t()
        if "scale_a" not in t:
            return (finish(torch.mm(t["a"], b)),)
        return (finish(torch._scaled_mm(t["a"], b, t["of_rows"].view(-1, 1), t["of_columns"][:1],
                                        out_dtype=torch.bfloat16)),)

    def loop(t):
        y = torch.empty(t["a"].shape[0], wide, dtype=t["a"].dtype, device="cuda")
        begin = 0
        for group, end in enumerate(t["host"]):
            if end > begin:
                torch.mm(t["a"][begin:end], t["b"][group * wide:(group + 1) * wide].t(), out=y[begin:end])
            begin = end
        return (finish(y),)

    found = {"torch_grouped_mm": grouped, DENSE: dense}
    if groups <= LOOP_GROUPS and values["dtype"] != "fp8_e4m3":
        found["torch_mm"] = loop
    return found


def measure(torch, library, problem, kind, seconds):
    _, values = rows.parse_problem(problem)
    kernel = library.kernel(problem, seconds)
    description = kernel.summary
    sets = make_sets(torch, values, kind, random.Random(problem))
    stack = 2 if values.get("gate") == "stacked" else 1
    flops = 2.0 * values["rows"] * stack * values["n"] * values["k"]
    torch.compiler.reset()
    calls = {"ours": library.function(torch, kernel), **peers(torch, values)}
    contestants, notes = {}, {}
    with torch.no_grad():
        ours = calls["ours"](sets[0])[0].float()
        for name, call in calls.items():
            try:
                theirs = call(sets[0])[0].float()
                if name != DENSE and not bool(((theirs - ours).abs() <= TOLERANCE * (ours.abs() + ours.abs().mean())).all()):
                    notes[name] = "differs"
                contestants[name] = rows.Contestant(torch, call, sets)
            except Exception as error:  # whatever keeps a peer from this problem
                if name == "ours":
                    raise
                print(f"     {name}: {str(error).splitlines()[0][:150]}")
        chooser = random.Random(problem)
        samples = rows.take_rounds(contestants, ROUNDS, chooser)
    return flops, samples, notes, f"{description['template']} {description['configuration']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", help="only these numbers of the list, as 1,5")
    parser.add_argument("--random", type=int, default=0, help="so many other shapes")
    parser.add_argument("--seed", type=int, default=1, help="of --random")
    parser.add_argument("--seconds", type=float, default=6, help="of tuning per problem without a record")
    parser.add_argument("--budget", type=float, default=560, help="seconds after which no problem is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
    started = time.monotonic()

    shapes = random_shapes(arguments.random, arguments.seed) if arguments.random else SHAPES
    only = arguments.shapes and arguments.shapes.split(",")
    try:
        import torch

        import kernwright  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77

    commit = rows.package_commit()
    device = torch.cuda.get_device_properties(0)
    document = {"bench": "grouped_vs_torch", "command": " ".join(["grouped_vs_torch.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}",
                           "sm_count": device.multi_processor_count, "torch": torch.__version__,
                           "cuda": torch.version.cuda}, "rows": []}
    if arguments.json.exists():
        document["rows"] = json.loads(arguments.json.read_text())["rows"]

    failed = False
    library = rows.Library(arguments.cache)
    for number, (kind, problem) in shapes.items():
        if only and str(number) not in only or rows.has_current(document["rows"], problem, commit):
            continue
        if time.monotonic() - started > arguments.budget:
            print("the budget is spent: run again to go on")
            break
        gc.collect()
        torch.cuda.empty_cache()
        try:
            new = make_rows(problem, kind, *measure(torch, library, problem, kind, arguments.seconds), commit)
        except Exception as error:  # one problem must not cost the visit
            print(f"{number:4d} {problem}: {str(error).splitlines()[0][:300]}", flush=True)
            failed = True
            continue
        failed = failed or any(row["note"] for row in new)
        for row in new:
            document["rows"] = rows.merge(document["rows"], row)
        temporary = arguments.json.with_suffix(".partial")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(temporary, arguments.json)
        print(table_line(number, new), flush=True)
    print(summary(document["rows"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
