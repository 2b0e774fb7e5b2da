#!/usr/bin/env python3
"""A whole decode step of a real model as a chain of tuned kernels, beside PyTorch, in one process and in
turn: embedding, all layers with attention over a KV cache, final norm, head and greedy choice.

Peers are Hugging Face's model with a static cache, and the same step written lean (one product for q, k
and v, one for gate and up), each compiled with max-autotune and captured in a CUDA graph, and the lean
one captured as it is. All share their weights, and start from one cache, that of Hugging Face's prefill.

A sample is 64 steps behind each other: each reads the token that the one before chose, and counts its
positions, on the device. Samples follow in a new random order every round. "floor_us" is the bytes of a
step (every weight once, K and V of the context) over what the memory gives.

No figure without its gate: over steps of given tokens, the error of logits, last hidden state and new
rows of K and V against the same model in fp32 may be at most LIMIT times that of Hugging Face's in bf16,
for each of them. Where another token is chosen than in fp32, the two have to be closer than the errors.
With --faults the gate is shown wrong models (an angle of another base, heads of k and v exchanged, a
position late), and each has to fail.

usage: model_decode.py --json FILE [--models NAME,...] [--batches N,...] [--contexts N,...] [--seconds N]
                       [--peers all|lean|none] [--faults] [--cache DIR] [--bin FOLDER]
"""

import argparse
import dataclasses
import datetime
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import time

import chains
import decode_models as models
import rows_vs_pytorch as rows

STEPS = 64  # of a sample
FORCED = 8  # of the gate
ROUNDS = 15
LIMIT = 1.2
DEVICE = "cuda"


# Pure parts, which the tests run without a GPU.

def step_problems(sizes, batch, longest):
    """The problems of a step by name."""
    d, qkv = sizes.head_dim, sizes.qkv
    norm = f"rmsnorm rows={batch} columns={sizes.hidden} dtype=bf16"
    heads = f"batch={batch} heads={sizes.heads} kv_heads={sizes.kv_heads} q_len=1 kv_len={longest} head_dim={d}"
    query_norm = " norm=rms" if sizes.has_query_norm else ""
    return {
        "embedding": f"embedding tokens={batch} hidden={sizes.hidden} vocabulary={sizes.vocabulary} dtype=bf16"
                     " lengths=advance",
        "norm": norm,
        "qkv": f"matmul m={batch} n={qkv} k={sizes.hidden} dtype=bf16",
        "append": f"kv_append {heads} ldq={qkv} ldk={qkv} ldv={qkv} dtype=bf16 lengths=kv rope=qk{query_norm}",
        "attention": f"attention {heads} dtype=bf16 lengths=kv",
        "o": f"matmul m={batch} n={sizes.hidden} k={sizes.heads * d} dtype=bf16 residual=add",
        "gate_up": f"matmul m={batch} n={sizes.inner} k={sizes.hidden} dtype=bf16 activation=silu gate=stacked",
        "down": f"matmul m={batch} n={sizes.hidden} k={sizes.inner} dtype=bf16 residual=add",
        "head": f"matmul m={batch} n={sizes.vocabulary} k={sizes.hidden} dtype=bf16 out=fp32",
        "argmax": f"argmax rows={batch} columns={sizes.vocabulary} dtype=fp32",
    }


def errors(torch, result, expected):
    """Relative error in the Euclidean norm, by name."""
    return {name: float((result[name].double() - value.double()).norm() / value.double().norm())
            for name, value in expected.items()}


def verdict(ours, noise):
    """Names of what is off by more than LIMIT times the noise."""
    return [name for name, error in ours.items() if not error <= LIMIT * noise[name]]


def make_rows(key, samples, details, commit):
    """One row per peer, or one without a peer; samples are us per step."""
    middle = {name: statistics.median(values) for name, values in samples.items()}
    shared = {**key, "ours_us": middle["ours"], "share_of_floor": key["floor_us"] / middle["ours"],
              "tokens_per_second": key["batch"] * 1e6 / middle["ours"], **details,
              "date": datetime.date.today().isoformat(), "kernwright": commit}
    return [{**shared, "peer": peer, "peer_us": middle.get(peer),
             "ratio": middle[peer] / middle["ours"] if peer in middle else None}
            for peer in ([name for name in middle if name != "ours"] or [None])]


# Ours.

class Ours:
    """The chain, its kernels by name, and the tensors that it works on: `token` and `lengths` of each
    sequence, `logits` and `hidden`, and caches of [batch, longest, kv_heads, head_dim]."""

    def __init__(self, torch, library, sizes, weights, batch, longest, seconds, fault=None):
        self.torch, self.library = torch, library
        d = sizes.head_dim
        wide = dataclasses.replace(sizes, theta=sizes.theta / 10) if fault == "theta" else sizes
        self.tables = models.rope_tables(torch, wide, longest, DEVICE)

        def empty(*shape, dtype=torch.bfloat16):
            return torch.zeros(shape, dtype=dtype, device=DEVICE)

        self.token, self.lengths = empty(batch, dtype=torch.int32), empty(batch, dtype=torch.int32)
        self.logits, self.hidden = empty(batch, sizes.vocabulary, dtype=torch.float32), empty(batch, sizes.hidden)
        self.cache = [tuple(empty(batch, longest, sizes.kv_heads, d) for _ in range(2)) for _ in range(sizes.layers)]
        problems = step_problems(sizes, batch, longest)
        self.kernels = {name: library.kernel(problem, seconds) for name, problem in problems.items()}
        self.described = {name: library.describe(kernel) for name, kernel in self.kernels.items()}
        self.builder = chains.ChainBuilder(library)
        buffer = {name: self.builder.buffer(2 * batch * columns) for name, columns in
                  {"x": sizes.hidden, "between": sizes.hidden, "normal": sizes.hidden, "qkv": sizes.qkv,
                   "q": sizes.heads * d, "attended": sizes.heads * d, "inner": sizes.inner}.items()}
        at = {"k": 2 * sizes.heads * d, "v": 2 * (sizes.heads + sizes.kv_heads) * d}
        if fault == "heads":
            at["k"], at["v"] = at["v"], at["k"]

        def part(name):
            slot = buffer["qkv"]
            return chains.ChainArg(slot.kind, None, 0, slot.slot, at[name])

        pointer = chains.pointer
        self.late = empty(batch, dtype=torch.int32) if fault == "late" else None
        cosine, sine = map(pointer, self.tables)
        lengths = self.builder.parameter(self.lengths)
        one_late = lengths if self.late is None else pointer(self.late)
        self.add("embedding", tokens=pointer(self.token), table=pointer(weights["embedding"]),
                 lengths=pointer(self.lengths), x=buffer["x"], lengths_out=lengths)
        epsilon = chains.scalar(sizes.epsilon)
        for w, (keys, values) in zip(weights["layers"], self.cache):
            self.add("norm", x=buffer["x"], w=pointer(w["norm1"]), y=buffer["normal"], eps=epsilon)
            self.add("qkv", a=buffer["normal"], b=pointer(w["qkv"]), d=buffer["qkv"])
            norms = {name: pointer(w[name]) for name in ("q_norm", "k_norm") if name in w}
            self.add("append", q=buffer["qkv"], k=part("k"), v=part("v"), cosine=cosine, sine=sine,
                     kv_lengths=one_late, q_out=buffer["q"], k_cache=pointer(keys), v_cache=pointer(values),
                     eps=epsilon, **norms)
            self.add("attention", q=buffer["q"], k=pointer(keys), v=pointer(values), kv_lengths=lengths,
                     o=buffer["attended"])
            self.add("o", a=buffer["attended"], b=pointer(w["o"]), residual=buffer["x"], d=buffer["between"])
            self.add("norm", x=buffer["between"], w=pointer(w["norm2"]), y=buffer["normal"], eps=epsilon)
            self.add("gate_up", a=buffer["normal"], b=pointer(w["gate_up"]), d=buffer["inner"])
            self.add("down", a=buffer["inner"], b=pointer(w["down"]), residual=buffer["between"], d=buffer["x"])
        self.add("norm", x=buffer["x"], w=pointer(weights["norm"]), y=pointer(self.hidden), eps=epsilon)
        self.add("head", a=pointer(self.hidden), b=pointer(weights["head"]), d=pointer(self.logits))
        self.add("argmax", x=pointer(self.logits), index=pointer(self.token))
        self.chain = self.builder.build()

    def add(self, name, **given):
        arguments = []
        for argument in self.described[name]["arguments"]:
            if argument["name"] in given:
                arguments.append(given[argument["name"]])
            elif argument["scalar"]:
                arguments.append(chains.scalar({"scale": self.default_scale(name)}[argument["name"]]))
            else:
                raise RuntimeError(f"{name} has an argument {argument['name']}")
        self.builder.add(self.kernels[name], arguments)

    def default_scale(self, name):
        return self.described[name]["arguments"][0]["extent"][-1] ** -0.5 if name == "attention" else 1.0

    def tune(self, stream):
        """Launches the chain thousands of times: the lengths that it counts to are others meanwhile,
        so that none grows beyond the cache."""
        spare = self.lengths.clone()
        self.chain.rebind(spare)
        self.chain.tune(stream)
        self.chain.rebind(self.lengths)

    def start(self, token, length, cache):
        """From `length` keys in each sequence, the first of [batch, kv_heads, longest, head_dim]."""
        self.token.copy_(token)
        self.lengths.fill_(length)
        if self.late is not None:
            self.late.fill_(length)
        for (keys, values), (k, v) in zip(self.cache, cache):
            keys.fill_(math.nan)
            values.fill_(math.nan)
            keys[:, :length].copy_(k[:, :, :length].transpose(1, 2))
            values[:, :length].copy_(v[:, :, :length].transpose(1, 2))

    def rows(self, first, count):
        """New rows of all layers as [layers, batch, kv_heads, count, head_dim]."""
        return [self.torch.stack([pair[i][:, first:first + count] for pair in self.cache]).transpose(2, 3)
                for i in range(2)]


# PyTorch's.

class Captured:
    """`step` in a graph with its argmax fed back."""

    def __init__(self, torch, step, token, position, stream):
        def whole():
            logits, _ = step(token, position)
            token.copy_(logits.argmax(-1))
            position.add_(1)

        with torch.cuda.stream(stream):
            for _ in range(2):
                whole()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            whole()
        torch.cuda.synchronize()


def forced(torch, step, tokens, context, cache):
    """Logits, hidden states and new rows over steps of given tokens, as [steps, batch, ..]."""
    logits, hidden = [], []
    position = torch.tensor([context], device=DEVICE)
    for token in tokens:
        out, state = step(token, position)
        logits.append(out.clone())
        hidden.append(state.float().clone())
        position += 1
    new = slice(context, context + len(tokens))
    return {"logits": torch.stack(logits), "hidden": torch.stack(hidden),
            "k": torch.stack([k[:, :, new] for k, _ in cache]).float(),
            "v": torch.stack([v[:, :, new] for _, v in cache]).float()}


def forced_ours(torch, ours, tokens, context, prefix, stream):
    ours.start(tokens[0], context, prefix)
    logits, hidden = [], []
    for token in tokens:
        ours.token.copy_(token)
        torch.cuda.synchronize()
        ours.chain.launch(stream)
        torch.cuda.synchronize()
        logits.append(ours.logits.clone())
        hidden.append(ours.hidden.float().clone())
        if ours.late is not None:
            ours.late.copy_(ours.lengths)
    k, v = ours.rows(context, len(tokens))
    return {"logits": torch.stack(logits), "hidden": torch.stack(hidden), "k": k.float(), "v": v.float()}


def unexplained(torch, result, noise, expected):
    """How many tokens differ from those in fp32 by more than errors explain."""
    chosen, right = result["logits"].argmax(-1), expected["logits"].argmax(-1)
    gap = (expected["logits"].gather(-1, right[..., None])
           - expected["logits"].gather(-1, chosen[..., None])).squeeze(-1)
    band = 2 * (noise["logits"] - expected["logits"]).abs().amax(-1)
    return int(((chosen != right) & (gap > band)).sum())


class Bench:
    """Of one model, batch and context."""

    def __init__(self, torch, transformers, library, sizes, batch, context, seconds):
        self.torch, self.transformers, self.library = torch, transformers, library
        self.sizes, self.batch, self.context, self.seconds = sizes, batch, context, seconds
        self.longest = context + STEPS
        self.stream = torch.cuda.Stream()
        self.model, self.weights = models.hugging_face(torch, sizes, self.longest, DEVICE)
        generator = torch.Generator(DEVICE).manual_seed(2)
        ids = torch.randint(sizes.vocabulary, (batch, context), generator=generator, device=DEVICE)
        self.tokens = torch.randint(sizes.vocabulary, (FORCED, batch), generator=generator, device=DEVICE)
        self.tables = models.rope_tables(torch, sizes, self.longest, DEVICE)
        cache = self.new_cache(self.model, torch.bfloat16)
        for begin in range(0, context, 512):
            self.model.model(input_ids=ids[:, begin:begin + 512], past_key_values=cache, use_cache=True)
        self.prefix = [(layer.keys, layer.values) for layer in cache.layers]

    def new_cache(self, model, dtype):
        return models.static_cache(self.torch, self.transformers, model, self.batch, self.longest, dtype, DEVICE)

    def filled_cache(self, model, dtype):
        cache = self.new_cache(model, dtype)
        for layer, (k, v) in zip(cache.layers, self.prefix):
            layer.keys[:, :, :self.context].copy_(k[:, :, :self.context])
            layer.values[:, :, :self.context].copy_(v[:, :, :self.context])
        models.set_length(cache, self.context)
        return cache

    def of_hugging_face(self, model, dtype):
        cache = self.filled_cache(model, dtype)
        return forced(self.torch, models.hugging_face_step(model, cache), self.tokens, self.context,
                      [(layer.keys, layer.values) for layer in cache.layers])

    def make_ours(self, fault=None):
        return Ours(self.torch, self.library, self.sizes, self.weights, self.batch, self.longest, self.seconds, fault)

    def expect(self):
        """What fp32 and what bf16 of Hugging Face give."""
        self.noise = self.of_hugging_face(self.model, self.torch.bfloat16)
        wide = {name: value.float() for name, value in self.model.state_dict().items()}
        narrow = {name: value for name, value in self.model.state_dict().items()}
        for name, module in self.model.named_modules():
            if isinstance(getattr(module, "weight", None), self.torch.nn.Parameter):
                module.weight = self.torch.nn.Parameter(wide[f"{name}.weight"], requires_grad=False)
        self.expected = self.of_hugging_face(self.model, self.torch.float32)
        for name, module in self.model.named_modules():
            if isinstance(getattr(module, "weight", None), self.torch.nn.Parameter):
                module.weight = self.torch.nn.Parameter(narrow[f"{name}.weight"], requires_grad=False)

    def gate(self, ours):
        result = forced_ours(self.torch, ours, self.tokens, self.context, self.prefix, self.stream)
        of_ours = errors(self.torch, result, self.expected)
        of_noise = errors(self.torch, self.noise, self.expected)
        off = verdict(of_ours, of_noise)
        if unexplained(self.torch, result, self.noise, self.expected):
            off.append("tokens")
        return {"errors": of_ours, "errors_of_bf16": of_noise, "off": off}

    def contestants(self, ours, peers):
        """Name -> (start, step)."""
        torch = self.torch
        first = self.tokens[0]
        found = {"ours": (lambda: ours.start(first, self.context, self.prefix), lambda: ours.chain.launch(self.stream))}
        made = []
        if peers != "none":
            made += [("lean_graph", False, False), ("lean_compiled", False, True)]
        if peers == "all":
            made += [("hugging_face_compiled", True, True)]
        for name, is_model, compiled in made:
            token, position = first.clone(), torch.tensor([self.context], device=DEVICE)
            cache = self.filled_cache(self.model, torch.bfloat16)
            pairs = [(layer.keys, layer.values) for layer in cache.layers]
            step = (models.hugging_face_step(self.model, cache) if is_model else
                    models.lean_step(torch, self.sizes, self.weights, self.tables, pairs, self.batch))
            if compiled:
                torch.compiler.reset()
                step = torch.compile(step, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

            def start(token=token, position=position, cache=cache):
                token.copy_(first)
                position.fill_(self.context)
                models.set_length(cache, self.context)

            begun = time.monotonic()
            try:
                captured = Captured(torch, step, token, position, self.stream)
            except Exception as error:
                print(f"{name}: {str(error).splitlines()[0][:200]}", flush=True)
                continue
            print(f"{name} captured after {time.monotonic() - begun:.0f} s", flush=True)
            found[name] = (start, captured.graph.replay)
        return found

    def measure(self, contestants):
        torch, samples, chooser = self.torch, {name: [] for name in contestants}, random.Random(3)
        for _ in range(ROUNDS):
            for name in chooser.sample(list(contestants), len(contestants)):
                start, step = contestants[name]
                start()
                torch.cuda.synchronize()
                with torch.cuda.stream(self.stream):
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                    for _ in range(STEPS):
                        step()
                    end.record()
                end.synchronize()
                samples[name].append(begin.elapsed_time(end) * 1e3 / STEPS)
        return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="qwen3-0.6b,llama-3.2-1b,qwen3-8b", help=", ".join(models.MODELS))
    parser.add_argument("--batches", default="1")
    parser.add_argument("--contexts", default="512")
    parser.add_argument("--seconds", type=float, default=4, help="of tuning per problem without a record")
    parser.add_argument("--peers", choices=("all", "lean", "none"), default="all")
    parser.add_argument("--faults", action="store_true", help="show the gate wrong models")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    parser.add_argument("--bin", type=pathlib.Path, help="folder of kernwright; lib/ lies beside it")
    arguments = parser.parse_args()
    unknown = set(arguments.models.split(",")) - models.MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(models.MODELS)}")
    parents = pathlib.Path(__file__).resolve().parents[:3]
    bins = [arguments.bin] if arguments.bin else [p / f for f in ("build/bin", "bin") for p in parents]
    program = rows.find("kernwright", bins) or sys.exit(f"no kernwright in {', '.join(map(str, bins))}: say --bin")
    library_path = rows.find("libkernwright.so.0", [program.parents[1] / "lib"]) or sys.exit(
        f"no libkernwright.so.0 in {program.parents[1] / 'lib'}")
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True).stdout
    commit = version.partition("(")[2].partition(")")[0]
    device = torch.cuda.get_device_properties(0)
    bandwidth = next((value for name, value in models.BANDWIDTH.items() if name in device.name), None)
    if bandwidth is None:
        sys.exit(f"what the memory of {device.name} gives is known of {', '.join(models.BANDWIDTH)} alone")
    document = {"bench": "model_decode", "command": " ".join(["model_decode.py", *sys.argv[1:]]),
                "date": datetime.date.today().isoformat(), "kernwright": commit,
                "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "torch": torch.__version__,
                           "transformers": transformers.__version__, "sm_count": device.multi_processor_count,
                           "cuda": torch.version.cuda, "bandwidth": bandwidth}, "rows": []}
    if arguments.json.exists():
        document["rows"] = json.loads(arguments.json.read_text())["rows"]
    library = rows.Library(library_path, arguments.cache)
    torch.zeros(1, device=DEVICE)  # the context that chains are built in
    failed = False
    for name in arguments.models.split(","):
        for batch in map(int, arguments.batches.split(",")):
            for context in map(int, arguments.contexts.split(",")):
                torch.cuda.empty_cache()
                sizes = models.MODELS[name]
                with torch.no_grad():
                    bench = Bench(torch, transformers, library, sizes, batch, context, arguments.seconds)
                    bench.expect()
                    ours = bench.make_ours()
                    gate = bench.gate(ours)
                    for fault in ("theta", "heads", "late") if arguments.faults else ():
                        found = bench.gate(bench.make_ours(fault))["off"]
                        print(f"fault {fault}: {', '.join(found) or 'NOT FOUND'}", flush=True)
                        failed = failed or not found
                    if gate["off"]:
                        print(f"{name} batch={batch} context={context}: off are {', '.join(gate['off'])}: {gate}",
                              flush=True)
                        failed = True
                        continue
                    ours.start(bench.tokens[0], context, bench.prefix)
                    ours.tune(bench.stream)
                    samples = bench.measure(bench.contestants(ours, arguments.peers))
                described = ours.chain.describe()
                weights, cache = sizes.weight_bytes(batch), sizes.cache_bytes(batch, context + STEPS // 2)
                key = {"problem": f"model_decode model={name} batch={batch} context={context}", "model": name,
                       "batch": batch, "context": context, "bytes": weights + cache,
                       "floor_us": (weights + cache) / bandwidth * 1e6}
                details = {"gate": gate, "path": described["path"], "kernels": described["kernels"],
                           "early_kernels": len(described["early_kernels"]),
                           "winners": {k: f"{d['template']} {d['configuration']}" for k, d in ours.described.items()}}
                new = make_rows(key, samples, details, commit)
                for row in new:
                    document["rows"] = rows.merge(document["rows"], row)
                    print(f"{key['problem']}: {row['ours_us']:.1f} us ({described['path']}, {row['kernels']} kernels),"
                          f" {row['tokens_per_second']:.0f} tokens/s, floor {key['floor_us']:.0f} us"
                          f" ({100 * row['share_of_floor']:.0f} %)"
                          + (f", {row['peer']} {row['peer_us']:.1f} us, {row['ratio']:.3f}" if row["peer"] else ""),
                          flush=True)
                arguments.json.write_text(json.dumps(document, indent=1) + "\n")
                del bench, ours, samples
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
