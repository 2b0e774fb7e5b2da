#!/usr/bin/env python3
"""Compares one decode step of a transformer without its attention, as one chain of tuned kernels, with
PyTorch eager and torch.compile, each captured in a CUDA graph, in one process and in turn.

28 layers with their own weights, in bf16, of four kernels each: product of the normalised rows with
qkv, product of its first columns with o and residual, gated product of the normalised rows with gate
and up (one weight, SwiGLU in the same kernel), product with down and residual. Every launch path of the chain is timed; "ours_us" is the one
that Chain::tune chose. Times are of one step between two events, on an idle stream.

usage: decode_step.py --json FILE [--models HIDDEN,...] [--batches N,...] [--seconds N]
                      [--cache DIR]
"""

import argparse
import datetime
import json
import pathlib
import sys

import rows_vs_pytorch as rows

LAYERS = 28
# hidden -> columns of qkv, of what o reads, and of the MLP
MODELS = {1024: (4096, 2048, 3072), 4096: (6144, 4096, 14336)}
ROUNDS = 20
STEPS = 15  # of one contestant in a row


# Pure parts, which the tests run without a GPU.

def weight_shapes(hidden):
    """The weights of one layer by name; a product's is [columns out, columns in]."""
    qkv, o, inner = MODELS[hidden]
    return {"norm1": [hidden], "qkv": [qkv, hidden], "o": [hidden, o], "norm2": [hidden],
            "gate_up": [2 * inner, hidden], "down": [hidden, inner]}


def buffer_columns(hidden):
    """Returns the data that pass between the kernels, as columns per row."""
    qkv, _, inner = MODELS[hidden]
    return {"qkv": qkv, "between": hidden, "inner": inner, "x": hidden}


def layer_steps(hidden, batch):
    """Problems of one layer in order, each with its arguments: "w:NAME" a weight, any other word a
    buffer, "x" being the layer's input and "y" its output."""
    qkv, o, inner = MODELS[hidden]
    # With more than one row the first o columns of qkv are rows with gaps.
    gaps = f" lda={qkv}" if batch > 1 else ""
    return [
        (f"matmul m={batch} n={qkv} k={hidden} dtype=bf16 norm=rms", ["x", "w:qkv", "w:norm1", "qkv"]),
        (f"matmul m={batch} n={hidden} k={o}{gaps} dtype=bf16 residual=add",
         ["qkv", "w:o", "x", "between"]),
        (f"matmul m={batch} n={inner} k={hidden} dtype=bf16 norm=rms activation=silu gate=stacked",
         ["between", "w:gate_up", "w:norm2", "inner"]),
        (f"matmul m={batch} n={hidden} k={inner} dtype=bf16 residual=add",
         ["inner", "w:down", "between", "y"])]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def make_rows(problem, samples, path, details, commit):
    """One row per peer; `samples` has ours by path, and the peers."""
    paths = {name: {"p50_us": percentile(values, 0.5), "p95_us": percentile(values, 0.95)}
             for name, values in samples.items()}
    ours = paths[path]
    return [{"problem": problem, "ours_us": ours["p50_us"], "ours_p95_us": ours["p95_us"], "peer": peer,
             "peer_us": paths[peer]["p50_us"], "peer_p95_us": paths[peer]["p95_us"],
             "ratio": paths[peer]["p50_us"] / ours["p50_us"], "path": path,
             "paths": {name: times for name, times in paths.items() if not name.startswith("torch")},
             "steps": len(samples[path]), **details, "date": datetime.date.today().isoformat(),
             "kernwright": commit} for peer in paths if peer.startswith("torch")]


# Ours.

def make_chain(package, kernels, hidden, batch, layers, x, y):
    """The step as a chain: `layers` are dicts of weights, x and y PyTorch's input and output."""
    builder = package.ChainBuilder()
    slots = {"in": builder.parameter(x), "out": builder.parameter(y)}
    for name, columns in buffer_columns(hidden).items():
        slots[name] = builder.buffer(2 * batch * columns)
    for i, weights in enumerate(layers):
        slots_here = {**slots, "x": slots["in"] if i == 0 else slots["x"],
                      "y": slots["out"] if i + 1 == len(layers) else slots["x"]}
        for problem, names in layer_steps(hidden, batch):
            builder.add(kernels[problem], *[weights[name[2:]] if name.startswith("w:") else slots_here[name]
                                            for name in names])
    return builder.build()


def launcher(chain, path, stream):
    """Launches along one path; setting a path that is set costs next to nothing."""
    def launch():
        chain.launch(stream)
    launch.prepare = lambda: chain.set_path(path)
    return launch


# PyTorch's.

def torch_step(torch, hidden, layers):
    functional = torch.nn.functional
    o = MODELS[hidden][1]

    def step(x):
        for w in layers:
            qkv = functional.linear(functional.rms_norm(x, (hidden,), w["norm1"], 1e-6), w["qkv"])
            between = functional.linear(qkv[:, :o], w["o"]) + x
            gate, up = functional.linear(
                functional.rms_norm(between, (hidden,), w["norm2"], 1e-6), w["gate_up"]).chunk(2, -1)
            x = functional.linear(functional.silu(gate) * up, w["down"]) + between
        return x

    return step


def captured(torch, step, x, stream):
    with torch.cuda.stream(stream):
        for _ in range(3):
            result = step(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(x)

    def replay():
        graph.replay()
    replay.prepare = lambda: None
    replay.result = result
    return replay


def sample(torch, call, stream):
    call.prepare()
    times = []
    with torch.cuda.stream(stream):
        call()
        for _ in range(STEPS):
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
    return times


def measure(torch, library, kernels, hidden, batch):
    torch.manual_seed(1)
    scaled = {name: shape[-1] ** -0.5 for name, shape in weight_shapes(hidden).items() if len(shape) == 2}
    layers = [{name: (torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scaled[name]
                      if name in scaled else torch.ones(shape, device="cuda", dtype=torch.bfloat16))
               for name, shape in weight_shapes(hidden).items()} for _ in range(LAYERS)]
    x = torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    stream = torch.cuda.Stream()
    chain = make_chain(library.package, kernels, hidden, batch, layers, x, y)
    times = chain.tune(stream)
    step = torch_step(torch, hidden, layers)
    torch.compiler.reset()
    calls = {time.path: launcher(chain, time.path, stream) for time in times}
    with torch.no_grad():
        calls["torch_eager"] = captured(torch, step, x, stream)
        calls["torch_compile"] = captured(torch, torch.compile(step, dynamic=False), x, stream)
    samples = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name] += sample(torch, call, stream)
    torch.cuda.synchronize()
    expected = calls["torch_eager"].result.float()
    error = float((y.float() - expected).norm() / expected.norm())
    return samples, chain, error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="1024,4096", help="by hidden size")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--seconds", type=float, default=8, help="of tuning per problem without a record")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
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
    document = {"bench": "decode_step", "command": " ".join(["decode_step.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}",
                           "sm_count": device.multi_processor_count, "torch": torch.__version__,
                           "cuda": torch.version.cuda}, "rows": []}
    if arguments.json.exists():
        document["rows"] = json.loads(arguments.json.read_text())["rows"]
    library = rows.Library(arguments.cache)
    torch.zeros(1, device="cuda")  # the context that chains are built in
    wrong = False
    for hidden in map(int, arguments.models.split(",")):
        for batch in map(int, arguments.batches.split(",")):
            torch.cuda.empty_cache()
            problems = dict.fromkeys(problem for problem, _ in layer_steps(hidden, batch))
            kernels = {problem: library.alternatives(problem, arguments.seconds) for problem in problems}
            samples, chain, error = measure(torch, library, kernels, hidden, batch)
            # Both round every result to bf16, and 28 layers pass that on.
            wrong = wrong or error > 0.05
            problem = f"decode_step hidden={hidden} layers={LAYERS} batch={batch} dtype=bf16"
            steps = layer_steps(hidden, batch)
            early = {steps[i % len(steps)][0] for i in chain.early_kernels}
            details = {"kernels": chain.kernels, "relative_error": error,
                       "early": sorted(early),
                       "winners": {steps[i % len(steps)][0]: "{template} {configuration}".format(**chosen)
                                   for i, chosen in enumerate(chain.chosen)}}
            for row in make_rows(problem, samples, chain.path, details, commit):
                document["rows"] = rows.merge(document["rows"], row)
                print(f"{problem}: {row['ours_us']:.1f} us ({row['path']}), {row['peer']} "
                      f"{row['peer_us']:.1f} us, {row['ratio']:.3f}, error {error:.4f}", flush=True)
            arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
