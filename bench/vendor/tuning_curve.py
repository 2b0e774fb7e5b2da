#!/usr/bin/env python3
"""The speed of a matrix product after some seconds of tuning, compared with TorchInductor's max-autotune.

For every shape and budget kernwright tunes from an empty cache (compiling included), and
matmul_vs_cublaslt times the winner against cuBLASLt. On the same machine, in the same run,
torch.compile tunes the same product from an empty cache, with its default backends and with Triton
alone, and is timed against torch's own linear (cuBLASLt's first algorithm) in one process: graph
replays over rotating buffers, cold L2, in turn. Both sides are given as fractions of the speed of
cuBLASLt's first algorithm; kernwright's also of that of its best.

usage: tuning_curve.py --json FILE [--shapes MxNxK,...] [--seconds 2,5,10,30] [--bin FOLDER]
"""

import argparse
import datetime
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

SHAPES = "4096x6144x4096,2048x2048x2048,512x28672x4096,16x4096x4096"
L2_BYTES = 60 << 20


def ours(program, shape, seconds, scratch):
    """One tuning from an empty cache; the rows that matmul_vs_cublaslt wrote."""
    file = scratch / f"ours-{shape}-{seconds}.json"
    command = [program, "--shapes", shape, "--seconds", str(seconds),
               "--cache", str(scratch / f"cache-{shape}-{seconds}"), "--json", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())


def sample_us(torch, graphs, order):
    """Microseconds per product of one replay of each graph, in the order given."""
    taken = {}
    for name in order:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graphs[name][0].replay()
        end.record()
        end.synchronize()
        taken[name] = begin.elapsed_time(end) * 1e3 / graphs[name][1]
    return taken


def inductor(shape, backends):
    """Runs in a process of its own: tunes, then times against torch.nn.functional.linear."""
    import torch
    import torch._inductor.config as config

    config.max_autotune_gemm_backends = backends
    config.fx_graph_cache = False
    m, n, k = (int(word) for word in shape.split("x"))
    torch.manual_seed(1)
    bytes_each = 2 * (m * k + n * k + m * n)
    sets = max(2, min(512, -(-3 * L2_BYTES // bytes_each)))
    inputs = [(torch.randn(m, k, device="cuda", dtype=torch.bfloat16),
               torch.randn(n, k, device="cuda", dtype=torch.bfloat16)) for _ in range(sets)]
    linear = torch.nn.functional.linear
    compiled = torch.compile(linear, mode="max-autotune-no-cudagraphs", dynamic=False)
    torch.cuda.synchronize()
    started = time.monotonic()
    compiled(*inputs[0])
    torch.cuda.synchronize()
    tuning_seconds = time.monotonic() - started

    graphs = {}
    for name, call in (("linear", linear), ("compiled", compiled)):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for pair in inputs:
                call(*pair)
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for pair in inputs:
            call(*pair)
        end.record()
        end.synchronize()
        rotations = max(1, round(3.0 / max(begin.elapsed_time(end), 1e-3)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(rotations):
                for pair in inputs:
                    call(*pair)
        graph.replay()
        graphs[name] = (graph, rotations * sets)
    torch.cuda.synchronize()
    samples = {"linear": [], "compiled": []}
    chooser = random.Random(1)
    for _ in range(31):
        order = ["linear", "compiled"]
        chooser.shuffle(order)
        for name, us in sample_us(torch, graphs, order).items():
            samples[name].append(us)
    right = torch.equal(torch.isfinite(compiled(*inputs[0])), torch.ones(m, n, device="cuda").bool())
    print(json.dumps({"linear_us": statistics.median(samples["linear"]),
                      "compiled_us": statistics.median(samples["compiled"]),
                      "tuning_seconds": tuning_seconds, "finite": right,
                      "torch": torch.__version__}))


def run_inductor(shape, backends, scratch):
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=tempfile.mkdtemp(dir=scratch),
                       TRITON_CACHE_DIR=tempfile.mkdtemp(dir=scratch))
    result = subprocess.run([sys.executable, __file__, "--inductor", backends, "--shapes", shape],
                            check=True, env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    return json.loads(result.stdout.strip().splitlines()[-1])


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
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--seconds", default="2,5,10,30")
    parser.add_argument("--bin", type=pathlib.Path,
                        help="folder of matmul_vs_cublaslt; default: on PATH, in build/bin, beside the dist")
    parser.add_argument("--inductor", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inductor:
        return inductor(arguments.shapes, arguments.inductor)
    if arguments.json is None:
        parser.error("--json FILE is required")
    program = find("matmul_vs_cublaslt", arguments.bin)

    document = None
    rows = []
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        for shape in arguments.shapes.split(","):
            m, n, k = shape.split("x")
            problem = f"matmul m={m} n={n} k={k} dtype=bf16"
            for seconds in arguments.seconds.split(","):
                measured = ours(program, shape, seconds, scratch)
                by_peer = {row["peer"]: row for row in measured["rows"]}
                first, best = by_peer["cublaslt_first"], by_peer["cublaslt_best"]
                document = document or {key: measured[key] for key in measured if key != "rows"}
                rows.append({"problem": problem, "peer": f"kernwright {seconds} s",
                             "ours_us": first["ours_us"], "budget_seconds": float(seconds),
                             "tuning_seconds": first["tuning_seconds"],
                             "of_cublaslt_first": first["ratio"], "of_cublaslt_best": best["ratio"],
                             "measured": first["measured"], "winner": first["winner"]})
                print(f"{problem:40s} {seconds:>4s} s: {first['ratio']:.3f} of first, "
                      f"{best['ratio']:.3f} of best", flush=True)
            for backends in ("ATEN,TRITON", "TRITON"):
                got = run_inductor(shape, backends, scratch)
                ratio = got["linear_us"] / got["compiled_us"]
                rows.append({"problem": problem, "peer": f"inductor max-autotune {backends}",
                             "peer_us": got["compiled_us"], "linear_us": got["linear_us"],
                             "tuning_seconds": got["tuning_seconds"], "of_cublaslt_first": ratio,
                             "torch": got["torch"]})
                print(f"{problem:40s} inductor {backends}, {got['tuning_seconds']:.1f} s: "
                      f"{ratio:.3f} of first", flush=True)
    document |= {"bench": "tuning_curve", "date": datetime.date.today().isoformat(),
                 "command": "tuning_curve.py --json " + arguments.json.name,
                 "rows": rows}
    arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
