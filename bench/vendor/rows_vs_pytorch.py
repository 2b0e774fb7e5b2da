#!/usr/bin/env python3
"""Compares memory-bound kernels with PyTorch: eager, torch.compile, and cuDNN's norms if its Python
frontend is installed. All run in one process by one protocol: CUDA graph replays over rotating
buffers larger than three times the L2, on random data, in turn, in a new random order every round.
If a peer has several variants (torch.compile's modes), one is selected in rounds that do not count.
Ours is called by the Python package; it is tuned first if the cache has no exact record of the problem.

The peer "gold_line" is 1.6 us + bytes / 4.35 TB/s, with the bytes of all tensors. Rows are kept by
problem and peer. A run continues where the last one stopped: problems that have rows of this commit
are left out.

usage: rows_vs_pytorch.py --json FILE [--worklist FILE,...] [--ops NAME,...] [--shapes RxC,...]
                          [--seconds N] [--budget N] [--cache DIR] [--compile-modes MODE,...]
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
import time

L2_BYTES = 60 << 20
MAX_SETS = 256
GRAPH_US = 3000  # one replay: long enough for the clock of events, short enough to take turns
SELECTION_ROUNDS = 5
ROUNDS = 21
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "int8": 1, "uint8": 1, "int32": 4, "bool": 1}
# Between two right results: both round once, and sum in their own order.
TOLERANCE = {"bf16": 2e-2, "fp16": 4e-3, "fp32": 1e-4, "fp8_e4m3": 0.13, "int8": 1.0}


# Pure parts, which the tests run without a GPU.

def parse_problem(text):
    """ "rmsnorm rows=2 columns=3 dtype=bf16" -> ("rmsnorm", {"rows": 2, ..., "dtype": "bf16"})."""
    name, *words = text.split()
    values = dict(word.split("=", 1) for word in words)
    return name, {key: int(value) if value.isdigit() else value for key, value in values.items()}


def wanted(text, operations, shapes):
    """Returns whether a problem passes the filters; None lets everything pass."""
    name, values = parse_problem(text)
    shape = f"{values.get('rows')}x{values.get('columns')}"
    return (operations is None or name in operations) and (shapes is None or shape in shapes)


def tensor_bytes(arguments):
    """Bytes of all tensors of a kernel's "arguments"."""
    total = 0
    for argument in arguments:
        if argument["scalar"]:
            continue
        elements = 1
        for extent in argument["extent"]:
            elements *= extent
        total += elements * BYTES[argument["dtype"]]
    return total


def gold_line_us(moved):
    return 1.6 + moved / 4.35e6


def set_count(moved):
    """Sets of buffers that together pass three times the L2."""
    return max(2, min(MAX_SETS, -(-3 * L2_BYTES // moved)))


def merge(rows, new):
    """`rows` with `new` in the place of the row of the same problem and peer, or at the end."""
    key = (new["problem"], new["peer"])
    kept = [new if (row["problem"], row["peer"]) == key else row for row in rows]
    return kept if new in kept else [*rows, new]


def has_current(rows, problem, commit):
    return any(row["problem"] == problem and row["kernwright"] == commit for row in rows)


def make_rows(problem, moved, samples, winner, note, commit):
    """One row per peer of `samples`, {"ours": [us, ...], PEER: ...}, and one for the gold line."""
    def spread(values):
        middle = statistics.median(values)
        return middle, statistics.median(abs(value - middle) for value in values)

    ours, ours_mad = spread(samples["ours"])
    peers = {name: spread(values) for name, values in samples.items() if name != "ours"}
    peers["gold_line"] = (gold_line_us(moved), 0.0)
    return [{"problem": problem, "ours_us": ours, "peer": name, "peer_us": us, "ratio": us / ours,
             "winner": winner, "bytes": moved, "ours_gbps": moved / ours / 1e3,
             "ours_mad_us": ours_mad, "peer_mad_us": mad, "rounds": len(samples["ours"]),
             "note": note, "date": datetime.date.today().isoformat(), "kernwright": commit}
            for name, (us, mad) in peers.items()]


# PyTorch's computation of each operation: a function of the named inputs that returns all results.

def activation(torch, name):
    functional = torch.nn.functional
    return {"silu": functional.silu, "relu": functional.relu,
            "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
            "gelu_erf": functional.gelu, "relu_squared": lambda x: functional.relu(x).square()}[name]


def torch_dtype(torch, name):
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
            "fp8_e4m3": torch.float8_e4m3fn, "int8": torch.int8, "uint8": torch.uint8,
            "int32": torch.int32, "bool": torch.bool}[name]


def cast(torch, y, values):
    """To the result's dtype; fp8 saturates, as ours does."""
    out = values.get("out", values["dtype"])
    if out == "fp8_e4m3":
        y = y.float().clamp(-448, 448)
    return y.to(torch_dtype(torch, out))


def torch_function(torch, name, values):
    """Returns the function of one problem, or None if PyTorch has no such thing here."""
    functional = torch.nn.functional
    columns = values.get("columns")

    def added(t):
        return t["x"] + t["r"] if "r" in t else t["x"]

    def norm(t, normalize):
        s = added(t)
        y = cast(torch, normalize(s), values)
        return (y, s) if "r" in t else (y,)

    def rmsnorm(t):
        return norm(t, lambda s: functional.rms_norm(s, (columns,), t.get("w"), 1e-6))

    def layernorm(t):
        return norm(t, lambda s: functional.layer_norm(s, (columns,), t.get("w"), t.get("b"), 1e-5))

    def softmax(t):
        return (torch.softmax(t["x"] + t["bias"] if "bias" in t else t["x"], -1),)

    def reduce(t):
        kind, x = values.get("kind", "sum"), t["x"]
        dims = (0, 1) if values.get("over") == "tensor" else (1,)
        out = torch_dtype(torch, values.get("out", values["dtype"]))
        y = {"sum": lambda: x.sum(dims, dtype=out), "mean": lambda: x.mean(dims, dtype=out),
             "max": lambda: x.amax(dims).to(out),
             "sum_squares": lambda: x.float().square().sum(dims).to(out)}[kind]()
        return (y.reshape(-1),)

    def gated(t):
        gate, up = t["x"].chunk(2, -1) if "x" in t else (t["gate"], t["up"])
        return (cast(torch, activation(torch, values.get("activation", "silu"))(gate) * up, values),)

    def biased(t):
        y = activation(torch, values.get("activation", "gelu_tanh"))(t["x"] + t["bias"])
        return (cast(torch, y + t["residual"] if "residual" in t else y, values),)

    def add(t):
        return (t["a"] + t["b"],)

    def elementwise(t):
        names = {"abs": torch.abs, "exp": torch.exp, "log": torch.log, "relu": torch.relu,
                 "sigmoid": torch.sigmoid, "sqrt": torch.sqrt, "tanh": torch.tanh, "a": 0.75, "b": 1.25,
                 **{key: activation(torch, key) for key in ("silu", "gelu_erf", "gelu_tanh")}, **t}
        # The library has read the formula by now: it is arithmetic over these names.
        return (cast(torch, eval(values["formula"], {"__builtins__": {}}, names), values),)

    def rope(t):
        def rotate(x):
            x = x.float()
            halves = values.get("pairs", "halves") == "halves"
            a, b = x.chunk(2, -1) if halves else (x[..., ::2], x[..., 1::2])
            cosine, sine = t["cosine"][:, None, :], t["sine"][:, None, :]
            turned = (a * cosine - b * sine, b * cosine + a * sine)
            y = torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)
            return y.to(torch_dtype(torch, values["dtype"]))
        return (rotate(t["q"]), rotate(t["k"]), *([t["v"].clone()] if "v" in t else []))

    if name == "softmax" and values.get("mask") == "causal":
        return None  # the rows' own lengths are not an argument of torch.softmax
    return {"rmsnorm": rmsnorm, "layernorm": layernorm, "softmax": softmax, "reduce": reduce,
            "gated_activation": gated, "bias_activation": biased, "vector_add": add,
            "rope": rope, "elementwise": elementwise}.get(name)


def cudnn_function(torch, name, values):
    """A norm by cuDNN's Python frontend; None for what is none, ImportError without the frontend."""
    if name not in ("rmsnorm", "layernorm") or "residual" in values or "weight" in values:
        return None
    import cudnn
    handle = cudnn.create_handle()
    types = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF,
             torch.float32: cudnn.data_type.FLOAT}
    rows, columns = values["rows"], values["columns"]
    dtype = torch_dtype(torch, values["dtype"])
    graph = cudnn.pygraph(io_data_type=types[dtype], intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)

    def vector(label, extent):
        return graph.tensor(name=label, dim=[extent, columns, 1, 1], stride=[columns, 1, columns, columns],
                            data_type=types[dtype])

    epsilon = graph.tensor(name="epsilon", dim=[1, 1, 1, 1], stride=[1, 1, 1, 1], is_pass_by_value=True,
                           data_type=cudnn.data_type.FLOAT)
    nodes = {"x": vector("x", rows), "w": vector("w", 1)}
    if name == "layernorm":
        nodes["b"] = vector("b", 1)
    phase = cudnn.norm_forward_phase.INFERENCE
    if name == "rmsnorm":
        y = graph.rmsnorm(name="norm", norm_forward_phase=phase, input=nodes["x"], scale=nodes["w"],
                          epsilon=epsilon)[0]
    else:
        y = graph.layernorm(name="norm", norm_forward_phase=phase, input=nodes["x"], scale=nodes["w"],
                            bias=nodes["b"], epsilon=epsilon)[0]
    y.set_output(True).set_data_type(types[dtype])
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device="cuda")
    host_epsilon = torch.full((1, 1, 1, 1), 1e-6 if name == "rmsnorm" else 1e-5)

    def call(t):
        result = torch.empty(rows, columns, dtype=dtype, device="cuda")
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        given = {node: t[label] for label, node in nodes.items()}
        graph.execute({**given, epsilon: host_epsilon, y: result}, workspace, handle=handle)
        return (result,)

    return call


# Ours, by the Python package.

class Library:
    """The package kernwright with a service of its own."""

    def __init__(self, cache):
        import kernwright
        self.package, self.service = kernwright, kernwright.Service(cache)

    def kernel(self, problem, seconds):
        """The kernel for a problem, tuned for so many seconds unless a record is exact."""
        kernel = self.service.kernel(problem)
        return kernel if kernel.match == "exact" else self.service.tune(problem, seconds)

    def alternatives(self, problem, seconds):
        """The same kernel, and behind it what may take its place in a chain."""
        self.kernel(problem, seconds)
        return self.service.kernels(problem)

    def function(self, torch, kernel):
        """Returns the same kind of function as PyTorch's: of the named inputs, returning all results."""
        def call(t):
            held, results = operands(torch, kernel, t)
            kernel(*held)
            return results

        return call


def operands(torch, kernel, t):
    """The tensors that a kernel takes, of the named inputs and new results; and the results."""
    tensors = [a for a in kernel.summary["arguments"] if not a["scalar"]]
    results = {a["name"]: torch.empty(a["extent"], dtype=torch_dtype(torch, a["dtype"]), device="cuda")
               for a in tensors if a["output"] and a["name"] not in t}
    return [results.get(a["name"], t.get(a["name"])) for a in tensors], tuple(results.values())


def package_tool():
    """The command line tool of the package that Python finds."""
    import kernwright
    return pathlib.Path(kernwright.__file__).with_name("bin") / "kernwright"


def package_commit():
    version = subprocess.run([package_tool(), "--version"], stdout=subprocess.PIPE, text=True).stdout
    return version.partition("(")[2].partition(")")[0]


# Measuring.

class Contestant:
    """A function captured over all buffer sets; `sample` replays it once."""

    def __init__(self, torch, call, sets):
        self.torch = torch
        self.sets = sets  # the graph reads them as long as it is replayed
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # what is compiled or allocated once is so before the capture
            for inputs in sets[:2]:
                call(inputs)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for inputs in sets:
                call(inputs)
            end.record()
        torch.cuda.synchronize()
        rotations = max(1, round(GRAPH_US / max(begin.elapsed_time(end) * 1e3, 1)))
        self.calls = rotations * len(sets)
        self.graph = torch.cuda.CUDAGraph()
        # Every set keeps its last results, so that results rotate through memory as inputs do.
        self.results = [None] * len(sets)
        with torch.cuda.graph(self.graph):
            for _ in range(rotations):
                for i, inputs in enumerate(sets):
                    self.results[i] = call(inputs)
        self.graph.replay()
        torch.cuda.synchronize()

    def sample(self):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / self.calls


def take_rounds(contestants, rounds, chooser):
    samples = {name: [] for name in contestants}
    for _ in range(rounds):
        order = list(contestants)
        chooser.shuffle(order)
        for name in order:
            samples[name].append(contestants[name].sample())
    return samples


def select(contestants, chooser):
    """One contestant per peer, "torch_compile:default" and its like being ways of one peer."""
    taken = take_rounds(contestants, SELECTION_ROUNDS, chooser)
    best = {}
    for name, values in taken.items():
        peer = name.split(":")[0]
        if peer not in best or statistics.median(values) < statistics.median(taken[best[peer]]):
            best[peer] = name
    return {peer: contestants[name] for peer, name in best.items()}


def differences(torch, ours, peer, arguments):
    """The names of results that are not close to the peer's; both are of the same inputs."""
    outputs = [a for a in arguments if not a["scalar"] and a["output"]]
    found = []
    for argument, mine, other in zip(outputs, ours, peer):
        mine, other = mine.float().flatten(), other.float().flatten()
        bound = TOLERANCE[argument["dtype"]] * (other.abs() + other.abs().mean())
        if not bool(((mine - other).abs() <= bound).all()):
            found.append(argument["name"])
    return found


def measure(torch, library, problem, seconds, modes):
    """The rows' samples of one problem, and the summary of our kernel."""
    name, values = parse_problem(problem)
    function = torch_function(torch, name, values)
    if function is None:
        raise RuntimeError("PyTorch has no counterpart")
    kernel = library.kernel(problem, seconds)
    description = kernel.summary
    arguments = description["arguments"]
    moved = tensor_bytes(arguments)
    sets = [{a["name"]: torch.randn(a["extent"], device="cuda").to(torch_dtype(torch, a["dtype"]))
             for a in arguments if not a["scalar"] and not a["output"]} for _ in range(set_count(moved))]
    calls = {"ours": library.function(torch, kernel), "torch_eager": function}
    torch.compiler.reset()
    for mode in modes:
        calls[f"torch_compile:{mode}"] = torch.compile(function, mode=mode, dynamic=False)
    notes = []
    try:
        cudnn = cudnn_function(torch, name, values)
        if cudnn is not None:
            calls["cudnn"] = cudnn
    except Exception as error:  # whatever keeps cuDNN from this problem is worth a note, no more
        notes.append(f"no cudnn: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    with torch.no_grad():
        differing = differences(torch, calls["ours"](sets[0]), function(sets[0]), arguments)
        if differing:
            notes.append("differs from torch_eager in " + ", ".join(differing))
        contestants = {label: Contestant(torch, call, sets) for label, call in calls.items()}
        chooser = random.Random(problem)
        samples = take_rounds(select(contestants, chooser), ROUNDS, chooser)
    return moved, samples, description, notes, bool(differing)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--worklist", help="default: rows_hopper.json and pointwise_hopper.json beside this")
    parser.add_argument("--ops", help="only these operations")
    parser.add_argument("--shapes", help="only these ROWSxCOLUMNS")
    parser.add_argument("--seconds", type=float, default=4, help="of tuning per problem without a record")
    parser.add_argument("--budget", type=float, default=450, help="seconds after which no problem is begun")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    parser.add_argument("--compile-modes", default="default")
    arguments = parser.parse_args()
    started = time.monotonic()

    parents = pathlib.Path(__file__).resolve().parents[:3]
    places = [folder / "worklists" / f"{name}_hopper.json" for name in ("rows", "pointwise")
              for folder in parents]
    worklists = ([pathlib.Path(name) for name in arguments.worklist.split(",")] if arguments.worklist
                 else [path for path in places if path.exists()])
    problems = [text for path in worklists for text in json.loads(path.read_text())["problems"]]
    operations = arguments.ops and arguments.ops.split(",")
    shapes = arguments.shapes and arguments.shapes.split(",")
    problems = [text for text in dict.fromkeys(problems) if wanted(text, operations, shapes)]
    try:
        import torch

        import kernwright  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77

    commit = package_commit()
    device = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.split() if shutil.which(query[0]) else []
    document = {"bench": "rows_vs_pytorch", "command": " ".join(["rows_vs_pytorch.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "driver": "".join(driver[:1]),
                           "sm_count": device.multi_processor_count, "torch": torch.__version__,
                           "cuda": torch.version.cuda}, "rows": []}
    if arguments.json.exists():
        document["rows"] = json.loads(arguments.json.read_text())["rows"]

    library = Library(arguments.cache)
    failed = False
    for problem in problems:
        if has_current(document["rows"], problem, commit):
            continue
        if time.monotonic() - started > arguments.budget:
            print("the budget is spent: run again to go on")
            break
        torch.cuda.empty_cache()
        try:
            moved, samples, description, notes, wrong = measure(
                torch, library, problem, arguments.seconds, arguments.compile_modes.split(","))
        except Exception as error:  # one problem must not cost the visit
            print(f"{problem}: {error}", flush=True)
            failed = True
            continue
        failed = failed or wrong
        winner = f"{description['template']} {description['configuration']}"
        for row in make_rows(problem, moved, samples, winner, "; ".join(notes), commit):
            document["rows"] = merge(document["rows"], row)
        temporary = arguments.json.with_suffix(".partial")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(temporary, arguments.json)
        line = ", ".join(f"{row['ratio']:.3f} of {row['peer']}" for row in document["rows"]
                         if row["problem"] == problem)
        print(f"{problem:60s} {statistics.median(samples['ours']):8.2f} us: {line} {'; '.join(notes)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
