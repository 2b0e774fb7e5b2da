#!/usr/bin/env python3
"""Measures a whole decode step of a real model as a chain of tuned kernels, beside PyTorch, in one process
and in turn: embedding, all layers with attention over a KV cache, final norm, head and greedy choice.

Peers are Hugging Face's model with a static cache, and the same step written lean (one product for q, k
and v, one for gate and up), each compiled with max-autotune and captured in a CUDA graph, and the lean
one captured as it is. All share their weights, and start from one cache, filled by Hugging Face's prefill.
A peer that does not compile, or takes longer than --peer-seconds, has a row with the reason.

A sample is so many steps behind each other: each reads the token that the one before chose, and counts
its positions, on the device. Ours and a peer follow in a new random order every round. "floor_us" is the
bytes of a mean step (every weight once, K and V of the context) over the memory's rate. "parts" has
each kind of kernel by itself, in a chain of all layers' of that kind, so that weights come from memory.

No figure without its gate: over steps of given tokens, the error of logits, last hidden state and new
rows of K and V against the same model in fp32 may be at most LIMIT times the error of Hugging Face's in
bf16, for each of them. If another token is chosen than in fp32, the two must be closer than the errors.
With more than one sequence this holds twice: for equal sequences, and for sequences of different
lengths, the shortest of one token. With --faults the gate is shown wrong models (an angle of another
base, heads of k and v exchanged, a position late), and each must fail.

With --weights int4 layers have these weights in groups of 128, with the embedding and the head in bf16.
They are exact in bf16, so that all peers run the same model, and the first of them is our own chain in
bf16, "bf16". Norms of layers are kernels of their own then.

Rows are written one by one, so that a run that is ended leaves what it has.

usage: model_decode.py --json FILE [--models NAME,...] [--batches N,...] [--contexts N[+STEPS],...]
                       [--seconds N] [--peers all|lean|none|NAME,...] [--peer-seconds N] [--faults]
                       [--cache DIR] [--weights bf16|int4]
"""

import argparse
import contextlib
import dataclasses
import datetime
import gc
import json
import math
import os
import pathlib
import random
import signal
import statistics
import sys
import time
import traceback

import decode_models as models
import rows_vs_pytorch as rows

STEPS = 64  # of a sample
FORCED = 8  # of the gate
ROUNDS = 15
PART_US = 5000  # a sample of one kind of kernel
LIMIT = 1.2
# Sequences that the model in fp32 takes at a time: its cache must fit beside 16 and 32 bits of all weights.
TOGETHER = 4
PEERS = ("lean_graph", "lean_compiled", "hugging_face_compiled")
WEIGHTS = ("bf16", "int4")
DEVICE = "cuda"


# Pure parts, which the tests run without a GPU.

def step_problems(sizes, batch, longest, weights="bf16"):
    """The problems of a step by name."""
    append = "norm_rope" if sizes.has_query_norm else "rope"
    problems = {
        "embedding": f"embedding tokens={batch} hidden={sizes.hidden} vocabulary={sizes.vocabulary} dtype=bf16"
                     " lengths=advance",
        "qkv": f"matmul m={batch} n={sizes.qkv} k={sizes.hidden} n_kv={sizes.kv_heads * sizes.head_dim} dtype=bf16"
               " norm=rms split=qkv",
        "attention": f"attention batch={batch} heads={sizes.heads} kv_heads={sizes.kv_heads} q_len=1"
                     f" kv_len={longest} head_dim={sizes.head_dim} dtype=bf16 lengths=kv append={append}",
        "o": f"matmul m={batch} n={sizes.hidden} k={sizes.heads * sizes.head_dim} dtype=bf16 residual=add",
        "gate_up": f"matmul m={batch} n={sizes.inner} k={sizes.hidden} dtype=bf16 norm=rms activation=silu"
                   " gate=stacked",
        "down": f"matmul m={batch} n={sizes.hidden} k={sizes.inner} dtype=bf16 residual=add",
        "head": f"matmul m={batch} n={sizes.vocabulary} k={sizes.hidden} dtype=bf16 out=fp32 norm=rms",
        "argmax": f"argmax rows={batch} columns={sizes.vocabulary} dtype=fp32",
    }
    if weights == "int4":
        for name in sizes.matrices():
            dims = problems[name].replace("matmul ", "quantized_matmul ").replace(" norm=rms", "")
            problems[name] = f"{dims} group={models.GROUP}"
        problems["norm"] = f"rmsnorm rows={batch} columns={sizes.hidden} dtype=bf16"
    return problems


def parse_context(text):
    """ "512" -> (512, STEPS), "32+128" -> (32, 128)."""
    context, _, steps = text.partition("+")
    return int(context), int(steps or STEPS)


def peer_names(text):
    """Peers of --peers; ValueError for another name."""
    names = {"all": PEERS, "lean": PEERS[:2], "none": ()}.get(text, tuple(text.split(",")))
    if set(names) - set(PEERS):
        raise ValueError(f"no peer {', '.join(sorted(set(names) - set(PEERS)))}; there are {', '.join(PEERS)}")
    return names


def gate_lengths(batch, context):
    """Tokens of each sequence that the gate's steps begin with, by what they are."""
    cases = {"alike": [context] * batch}
    if batch > 1:
        chooser = random.Random(5)
        cases["unlike"] = [context, 1] + [chooser.randint(1, context) for _ in range(batch - 2)]
    return cases


def groups(lengths):
    """Sequences of one length, at most TOGETHER: pairs of a length and the sequences' places."""
    found = []
    for length in sorted(set(lengths)):
        places = [i for i, other in enumerate(lengths) if other == length]
        found += [(length, places[i:i + TOGETHER]) for i in range(0, len(places), TOGETHER)]
    return found


def errors(torch, result, expected):
    """Relative error in the Euclidean norm, by name."""
    return {name: float((result[name].double() - value.double()).norm() / value.double().norm())
            for name, value in expected.items()}


def verdict(ours, noise):
    """Names of what is off by more than LIMIT times the noise."""
    return [name for name, error in ours.items() if not error <= LIMIT * noise[name]]


def make_row(key, commit, details, ours, peer=None, theirs=None):
    """One row; `ours` and `theirs` are samples in us per step."""
    middle, other = statistics.median(ours), statistics.median(theirs) if theirs else None
    return {**key, "ours_us": middle, "share_of_floor": key["floor_us"] / middle,
            "tokens_per_second": key["batch"] * 1e6 / middle, "peer": peer, "peer_us": other,
            "ratio": other / middle if theirs else None, **details,
            "date": datetime.date.today().isoformat(), "kernwright": commit}


def tables(found):
    """Returns rows as two tables: steps with their peers, and the parts of a step. Rows without a peer are ours
    alone."""
    others = ("bf16", *PEERS) if any(row["peer"] == "bf16" for row in found) else PEERS
    lines = [["model", "batch", "context", "steps", "kernels", "us", "tokens/s", "floor us", "share", *others,
              "worst of gate"]]
    parts = [["model", "batch", "context", "kernel", "times", "us", "floor us", "all us", "is"]]
    for row in found:
        if row["peer"] is not None:
            continue
        shape = [row["model"], row["batch"], row["context"]]
        of_peer = {other["peer"]: other for other in found if other["problem"] == row["problem"]}
        peers = ["" if name not in of_peer else "failed" if of_peer[name]["peer_us"] is None
                 else f"{of_peer[name]['peer_us']:.0f} ({of_peer[name]['ratio']:.2f})" for name in others]
        worst = max(case["errors"][name] / case["errors_of_bf16"][name]
                    for case in row["gate"].values() for name in case["errors"])
        lines.append([*shape, row["steps"], row["kernels"], f"{row['ours_us']:.1f}",
                      f"{row['tokens_per_second']:.0f}", f"{row['floor_us']:.1f}",
                      f"{100 * row['share_of_floor']:.1f} %", *peers, f"{worst:.2f}"])
        parts += [[*shape, name, part["times"], f"{part['us']:.2f}", f"{part['floor_us']:.2f}",
                   f"{part['us'] * part['times']:.1f}", part["kernel"]] for name, part in row["parts"].items()]
        parts.append([*shape, "all", row["kernels"], "", "",
                      f"{sum(part['us'] * part['times'] for part in row['parts'].values()):.1f}", ""])
    return "\n\n".join("\n".join("| " + " | ".join(map(str, line)) + " |" + ("\n|" + " --- |" * len(line) if i == 0
                                                                        else "") for i, line in enumerate(table))
                       for table in (lines, parts))


class OutOfTime(BaseException):
    """No Exception, which compilers catch to try another way."""


@contextlib.contextmanager
def time_limit(seconds):
    """Ends a block that takes longer, in the main thread. If an end is caught, it comes again."""
    def end(*_):
        raise OutOfTime(f"takes more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Ours.

NEW_LENGTHS = object()  # the memory that the step's own lengths are written to


class Ours:
    """The chain, its kernels by name, and the tensors that it works on: `token` and `lengths` of each
    sequence, `logits`, `x` in front of the last norm, and caches of
    [batch, longest, kv_heads, head_dim]."""

    def __init__(self, torch, library, sizes, weights, batch, longest, seconds, fault=None, packed=None):
        self.torch, self.library, self.sizes, self.weights = torch, library, sizes, weights
        d = sizes.head_dim
        wide = dataclasses.replace(sizes, theta=sizes.theta / 10) if fault == "theta" else sizes
        self.cosine, self.sine = models.rope_tables(torch, wide, longest, DEVICE)

        def empty(*shape, dtype=torch.bfloat16):
            return torch.zeros(shape, dtype=dtype, device=DEVICE)

        self.token, self.lengths = empty(batch, dtype=torch.int32), empty(batch, dtype=torch.int32)
        self.late = empty(batch, dtype=torch.int32) if fault == "late" else None
        self.logits = empty(batch, sizes.vocabulary, dtype=torch.float32)
        self.x, self.between = empty(batch, sizes.hidden), empty(batch, sizes.hidden)
        q, attended = empty(batch, sizes.heads * d), empty(batch, sizes.heads * d)
        k_new, v_new = (empty(batch, sizes.kv_heads * d) for _ in range(2))
        inner = empty(batch, sizes.inner)
        self.cache = [tuple(empty(batch, longest, sizes.kv_heads, d) for _ in range(2)) for _ in range(sizes.layers)]
        self.kernels = {name: library.alternatives(problem, seconds)
                        for name, problem in step_problems(
                            sizes, batch, longest, "int4" if packed else "bf16").items()}
        self.arguments = {name: kernels[0].summary["arguments"] for name, kernels in self.kernels.items()}

        epsilon = {"eps": sizes.epsilon}
        halves = {"d_k": v_new, "d_v": k_new} if fault == "heads" else {"d_k": k_new, "d_v": v_new}
        self.steps = [("embedding", {"tokens": self.token, "table": weights["embedding"], "lengths": self.lengths,
                                     "x": self.x, "lengths_out": NEW_LENGTHS})]
        normalised = empty(batch, sizes.hidden)

        def behind_norm(name, x, norm, more):
            """A product behind a norm, which is a kernel of its own in front of packed weights."""
            if packed is None:
                return [(name, {"a": x, "norm_weight": norm, **more, **epsilon})]
            return [("norm", {"x": x, "w": norm, "y": normalised, "scale": 1.0, **epsilon}),
                    (name, {"a": normalised, **more})]

        for place, (w, (keys, values)) in enumerate(zip(weights["layers"], self.cache)):
            b = {name: {"b": w[name]} if packed is None else
                 {"b": packed[place][name].codes, "b_scale": packed[place][name].scales} for name in sizes.matrices()}
            norms = {name: w[name] for name in ("q_norm", "k_norm") if name in w}
            self.steps += [
                *behind_norm("qkv", self.x, w["norm1"], {**b["qkv"], "d": q, **halves}),
                ("attention", {"q": q, "k": keys, "v": values, "k_new": k_new, "v_new": v_new, **norms,
                               "cosine": self.cosine, "sine": self.sine,
                               "kv_lengths": NEW_LENGTHS if self.late is None else self.late, "o": attended,
                               "scale": d ** -0.5, **epsilon}),
                ("o", {"a": attended, **b["o"], "residual": self.x, "d": self.between}),
                *behind_norm("gate_up", self.between, w["norm2"], {**b["gate_up"], "d": inner}),
                ("down", {"a": inner, **b["down"], "residual": self.between, "d": self.x})]
        self.steps += [
            ("head", {"a": self.x, "norm_weight": weights["norm"], "b": weights["head"], "d": self.logits,
                      **epsilon}),
            ("argmax", {"x": self.logits, "index": self.token})]
        self.chain = self.chain_of(self.steps, self.lengths)

    def chain_of(self, steps, new_lengths):
        builder = self.library.package.ChainBuilder()
        parameter = builder.parameter(new_lengths)
        for name, given in steps:
            arguments = []
            for argument in self.arguments[name]:
                value = given[argument["name"]]
                arguments.append(parameter if value is NEW_LENGTHS else value if argument["scalar"]
                                 else value.view(argument["extent"]))
            builder.add(self.kernels[name], *arguments)
        return builder.build()

    def keep_chosen(self):
        """Keeps for each kind only the kernel that the chain has, and returns the names of these kernels."""
        chosen = {}
        for (name, _), is_now in zip(self.steps, self.chain.chosen):
            chosen[name] = f"{is_now['template']} {is_now['configuration']}"
        for name, kernels in self.kernels.items():
            self.kernels[name] = [kernel for kernel in kernels
                                  if f"{kernel.template} {kernel.configuration}"
                                  == chosen[name]][:1]
        return chosen

    def tune(self, stream):
        """Launches the chain thousands of times, and chooses its kernels: the lengths that it counts to are others meanwhile,
        so that none grows beyond the cache."""
        spare = self.lengths.clone()
        self.chain.rebind(spare)
        self.chain.tune(stream)
        self.chain.rebind(self.lengths)

    def hidden(self):
        """Returns the last hidden state in fp32, which is never a tensor between two kernels."""
        x = self.x.float()
        return (x * (x.square().mean(-1, keepdim=True) + self.sizes.epsilon).rsqrt()
                * self.weights["norm"].float())

    def start(self, token, lengths, cache):
        """From so many keys in each sequence, the first of [batch, kv_heads, longest, head_dim]."""
        self.token.copy_(token)
        self.lengths.copy_(self.torch.tensor(lengths))
        if self.late is not None:
            self.late.copy_(self.lengths)
        for own, whole in zip(self.cache, cache):
            for mine, theirs in zip(own, whole):
                mine.fill_(math.nan)
                for i, length in enumerate(lengths):
                    mine[i, :length].copy_(theirs[i, :, :length].transpose(0, 1))

    def rows(self, lengths, count):
        """New rows of all layers as [layers, batch, kv_heads, count, head_dim]."""
        stack = self.torch.stack
        return [stack([stack([pair[part][i, length:length + count] for i, length in enumerate(lengths)])
                       for pair in self.cache]).transpose(2, 3) for part in range(2)]


# PyTorch's.

class Captured:
    """`step` in a graph with its argmax fed back; what compiles may take so many seconds."""

    def __init__(self, torch, step, token, position, stream, seconds):
        def whole():
            logits, _ = step(token, position)
            token.copy_(logits.argmax(-1))
            position.add_(1)

        with time_limit(seconds), torch.cuda.stream(stream):
            for _ in range(2):
                whole()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            whole()
        torch.cuda.synchronize()


def forced(torch, step, tokens, context, cache):
    """Logits, hidden states and new rows over steps of given tokens, as [steps, batch, ..], and as
    [layers, batch, ..] for the rows."""
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


def forced_ours(torch, ours, tokens, lengths, prefix, stream):
    ours.start(tokens[0], lengths, prefix)
    logits, hidden = [], []
    for token in tokens:
        ours.token.copy_(token)
        torch.cuda.synchronize()
        ours.chain.launch(stream)
        torch.cuda.synchronize()
        logits.append(ours.logits.clone())
        hidden.append(ours.hidden())
        if ours.late is not None:
            ours.late.copy_(ours.lengths)
    k, v = ours.rows(lengths, len(tokens))
    return {"logits": torch.stack(logits), "hidden": torch.stack(hidden), "k": k.float(), "v": v.float()}


def unexplained(torch, result, noise, expected):
    """How many tokens differ from those in fp32 by more than errors explain."""
    chosen, right = result["logits"].argmax(-1), expected["logits"].argmax(-1)
    gap = (expected["logits"].gather(-1, right[..., None])
           - expected["logits"].gather(-1, chosen[..., None])).squeeze(-1)
    band = 2 * (noise["logits"] - expected["logits"]).abs().amax(-1)
    return int(((chosen != right) & (gap > band)).sum())


class Bench:
    """The bench of one model, batch and context."""

    def __init__(self, torch, transformers, library, sizes, batch, context, steps, seconds, weights="bf16"):
        self.torch, self.transformers, self.library = torch, transformers, library
        self.sizes, self.batch, self.context, self.steps, self.seconds = sizes, batch, context, steps, seconds
        self.longest = context + max(steps, FORCED)
        self.stream = torch.cuda.Stream()
        self.model, self.weights = models.hugging_face(torch, sizes, self.longest, DEVICE)
        self.packed = models.quantize(torch, sizes, self.weights) if weights == "int4" else None
        generator = torch.Generator(DEVICE).manual_seed(2)
        ids = torch.randint(sizes.vocabulary, (batch, context), generator=generator, device=DEVICE)
        self.tokens = torch.randint(sizes.vocabulary, (FORCED, batch), generator=generator, device=DEVICE)
        self.tables = models.rope_tables(torch, sizes, self.longest, DEVICE)
        cache = self.new_cache(batch, torch.bfloat16)
        for begin in range(0, context, 512):
            self.model.model(input_ids=ids[:, begin:begin + 512], past_key_values=cache, use_cache=True)
        self.prefix = [(layer.keys, layer.values) for layer in cache.layers]

    def new_cache(self, batch, dtype):
        return models.static_cache(self.torch, self.transformers, self.model, batch, self.longest, dtype, DEVICE)

    def filled_cache(self, length, places, dtype):
        """Returns a cache of the sequences at these places, with so many tokens each."""
        cache = self.new_cache(len(places), dtype)
        for layer, (k, v) in zip(cache.layers, self.prefix):
            layer.keys[:, :, :length].copy_(k[places, :, :length])
            layer.values[:, :, :length].copy_(v[places, :, :length])
        models.set_length(cache, length)
        return cache

    def of_hugging_face(self, lengths, dtype):
        parts = []
        for length, places in groups(lengths):
            cache = self.filled_cache(length, places, dtype)
            parts.append((places, forced(self.torch, models.hugging_face_step(self.model, cache),
                                         self.tokens[:, places], length,
                                         [(layer.keys, layer.values) for layer in cache.layers])))
        order = self.torch.tensor([place for places, _ in parts for place in places], device=DEVICE).argsort()
        return {name: self.torch.cat([part[name] for _, part in parts], 1)[:, order] for name in parts[0][1]}

    def make_ours(self, fault=None):
        return Ours(self.torch, self.library, self.sizes, self.weights, self.batch, self.longest, self.seconds, fault,
                    self.packed)

    def set_weights(self, chosen):
        for name, module in self.model.named_modules():
            if isinstance(getattr(module, "weight", None), self.torch.nn.Parameter):
                module.weight = self.torch.nn.Parameter(chosen[f"{name}.weight"], requires_grad=False)

    def expect(self):
        """Computes the results of Hugging Face in fp32 and in bf16, for all lengths of the gate."""
        cases = gate_lengths(self.batch, self.context)
        self.noise = {case: self.of_hugging_face(lengths, self.torch.bfloat16) for case, lengths in cases.items()}
        narrow = dict(self.model.state_dict())
        self.set_weights({name: value.float() for name, value in narrow.items()})
        self.expected = {case: self.of_hugging_face(lengths, self.torch.float32) for case, lengths in cases.items()}
        self.set_weights(narrow)
        self.torch.cuda.empty_cache()

    def gate(self, ours):
        """Errors and what is off, by the lengths."""
        found = {}
        for case, lengths in gate_lengths(self.batch, self.context).items():
            result = forced_ours(self.torch, ours, self.tokens, lengths, self.prefix, self.stream)
            of_ours = errors(self.torch, result, self.expected[case])
            of_noise = errors(self.torch, self.noise[case], self.expected[case])
            off = verdict(of_ours, of_noise)
            if unexplained(self.torch, result, self.noise[case], self.expected[case]):
                off.append("tokens")
            found[case] = {"errors": of_ours, "errors_of_bf16": of_noise, "off": off}
        return found

    def contestant(self, ours):
        """Returns the function that begins a sample of ours, and a step."""
        lengths = [self.context] * self.batch
        return lambda: ours.start(self.tokens[0], lengths, self.prefix), lambda: ours.chain.launch(self.stream)

    def peer(self, name, seconds):
        """The same of a peer. Raises what it fails with."""
        torch, first = self.torch, self.tokens[0]
        if name == "bf16":
            ours = Ours(torch, self.library, self.sizes, self.weights, self.batch, self.longest, self.seconds)
            self.contestant(ours)[0]()
            ours.tune(self.stream)
            if any(case["off"] for case in self.gate(ours).values()):
                raise RuntimeError("its gate is shut")
            return self.contestant(ours)
        token, position = first.clone(), torch.tensor([self.context], device=DEVICE)
        cache = self.filled_cache(self.context, list(range(self.batch)), torch.bfloat16)
        if name == "hugging_face_compiled":
            self.model.set_attn_implementation("sdpa")  # its default; the gate's reference is plainer
            step = models.hugging_face_step(self.model, cache)
        else:
            pairs = [(layer.keys, layer.values) for layer in cache.layers]
            step = models.lean_step(torch, self.sizes, self.weights, self.tables, pairs, self.batch)
        if name.endswith("_compiled"):
            step = torch.compile(step, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
        begun = time.monotonic()
        captured = Captured(torch, step, token, position, self.stream, seconds)
        print(f"{name} captured after {time.monotonic() - begun:.0f} s", flush=True)

        def start():
            token.copy_(first)
            position.fill_(self.context)
            models.set_length(cache, self.context)

        return start, captured.graph.replay

    def measure(self, contestants):
        """Samples by name, in us per step."""
        samples, chooser = {name: [] for name in contestants}, random.Random(3)
        for _ in range(ROUNDS):
            for name in chooser.sample(list(contestants), len(contestants)):
                start, step = contestants[name]
                start()
                self.torch.cuda.synchronize()
                samples[name].append(self.elapsed_us(step, self.steps) / self.steps)
        return samples

    def elapsed_us(self, call, count):
        torch = self.torch
        with torch.cuda.stream(self.stream):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                call()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def parts(self, ours, bandwidth):
        """Measures each kind of kernel by itself, on the path of the whole step if it has that."""
        path, chosen, spare = ours.chain.path, ours.keep_chosen(), ours.lengths.clone()
        self.contestant(ours)[0]()
        spare.fill_(self.context + 1)
        moved = self.sizes.kernel_bytes(self.batch, self.context, "int4" if self.packed else "bf16")
        found = {}
        for name, kernel in chosen.items():
            chain = ours.chain_of([step for step in ours.steps if step[0] == name], spare)
            if path in chain.paths:
                chain.set_path(path)
            launch = lambda: chain.launch(self.stream)  # noqa: E731
            launches = max(1, round(PART_US / max(self.elapsed_us(launch, 2) / 2, 1)))
            times = [self.elapsed_us(launch, launches) / launches for _ in range(5)]
            found[name] = {"kernel": kernel, "times": self.sizes.count(name),
                           "us": statistics.median(times) / self.sizes.count(name),
                           "floor_us": moved[name] / bandwidth * 1e6}
        return found


class Rows:
    """The rows of a file, which has them at once."""

    def __init__(self, file, document):
        self.file, self.document, self.new = file, document, []
        if file.exists():
            document["rows"] = json.loads(file.read_text())["rows"]

    def keep(self, row):
        self.document["rows"] = rows.merge(self.document["rows"], row)
        self.new.append(row)
        temporary = self.file.with_suffix(".partial")
        temporary.write_text(json.dumps(self.document, indent=1) + "\n")
        os.replace(temporary, self.file)


def run_one(bench, key, peers, peer_seconds, faults, bandwidth, commit, kept):
    """Runs the gate of the tuned chain, then its time, then each peer. Returns whether everything was right
    that must be."""
    bench.expect()
    ours, right = bench.make_ours(), True
    bench.contestant(ours)[0]()
    ours.tune(bench.stream)
    gate = bench.gate(ours)
    for fault in ("theta", "heads", "late") if faults else ():
        for case, found in bench.gate(bench.make_ours(fault)).items():
            print(f"fault {fault}, {case}: {', '.join(found['off']) or 'NOT FOUND'}", flush=True)
            right = right and bool(found["off"])
    if any(case["off"] for case in gate.values()):
        print(f"{key['problem']}: the gate is shut: {json.dumps(gate)}", flush=True)
        return False
    contestants = {"ours": bench.contestant(ours)}
    alone = bench.measure(contestants)["ours"]
    row = make_row(key, commit, {"gate": gate, "seconds": bench.seconds, "path": ours.chain.path,
                                 "kernels": ours.chain.kernels,
                                 "early_kernels": len(ours.chain.early_kernels),
                                 "parts": bench.parts(ours, bandwidth)}, alone)
    kept.keep(row)
    print(f"{key['problem']}: {row['ours_us']:.1f} us ({row['path']}, {row['kernels']} kernels),"
          f" {row['tokens_per_second']:.0f} tokens/s, floor {key['floor_us']:.0f} us"
          f" ({100 * row['share_of_floor']:.0f} %)", flush=True)
    for peer in (*(["bf16"] if bench.packed else []), *peers):
        try:
            samples = bench.measure({**contestants, peer: bench.peer(peer, peer_seconds)})
            row = make_row(key, commit, {}, samples["ours"], peer, samples[peer])
            print(f"{key['problem']}: {row['ours_us']:.1f} us, {peer} {row['peer_us']:.1f} us,"
                  f" {row['ratio']:.3f}", flush=True)
        except (Exception, OutOfTime) as error:
            reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:300]
            row = make_row(key, commit, {"reason": reason}, alone, peer)
            print(f"{key['problem']}: {peer}: {reason}", flush=True)
        kept.keep(row)
        bench.torch.compiler.reset()  # what is compiled holds its cache
        gc.collect()
        bench.torch.cuda.empty_cache()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="qwen3-0.6b,llama-3.2-1b,qwen3-8b", help=", ".join(models.MODELS))
    parser.add_argument("--batches", default="1")
    parser.add_argument("--contexts", default="512", help=f"tokens before a sample, and its steps, {STEPS} by default")
    parser.add_argument("--seconds", type=float, default=4, help="of tuning per problem without a record")
    parser.add_argument("--peers", default="all", help=f"all, lean, none, or some of {', '.join(PEERS)}")
    parser.add_argument("--peer-seconds", type=float, default=240, help="to compile one peer in")
    parser.add_argument("--weights", choices=WEIGHTS, default="bf16", help="of layers")
    parser.add_argument("--faults", action="store_true", help="show the gate wrong models")
    parser.add_argument("--cache", type=pathlib.Path, help="default: the user's")
    arguments = parser.parse_args()
    unknown = set(arguments.models.split(",")) - models.MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(models.MODELS)}")
    try:
        peers = peer_names(arguments.peers)
    except ValueError as error:
        parser.error(str(error))
    try:
        import torch
        import transformers

        import kernwright  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 77
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77
    commit = rows.package_commit()
    device = torch.cuda.get_device_properties(0)
    bandwidth = next((value for name, value in models.BANDWIDTH.items() if name in device.name), None)
    if bandwidth is None:
        sys.exit(f"what the memory of {device.name} gives is known of {', '.join(models.BANDWIDTH)} alone")
    kept = Rows(arguments.json, {
        "bench": "model_decode", "command": " ".join(["model_decode.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(), "kernwright": commit,
        "device": {"name": device.name, "uuid": f"GPU-{device.uuid}", "torch": torch.__version__,
                   "transformers": transformers.__version__, "sm_count": device.multi_processor_count,
                   "cuda": torch.version.cuda, "bandwidth": bandwidth}, "rows": []})
    library = rows.Library(arguments.cache)
    torch.zeros(1, device=DEVICE)  # the context that chains are built in
    right = True
    for name in arguments.models.split(","):
        for batch in map(int, arguments.batches.split(",")):
            for context, steps in map(parse_context, arguments.contexts.split(",")):
                sizes = models.MODELS[name]
                moved = sizes.step_bytes(batch, context + (steps - 1) / 2, arguments.weights)
                kind = "" if arguments.weights == "bf16" else f" weights={arguments.weights}"
                key = {"problem": f"model_decode model={name} batch={batch} context={context} steps={steps}{kind}",
                       "model": name + kind, "batch": batch, "context": context, "steps": steps, "bytes": moved,
                       "floor_us": moved / bandwidth * 1e6}
                try:
                    with torch.no_grad():
                        bench = Bench(torch, transformers, library, sizes, batch, context, steps, arguments.seconds,
                                      arguments.weights)
                        right = run_one(bench, key, peers, arguments.peer_seconds, arguments.faults, bandwidth,
                                        commit, kept) and right
                except Exception:
                    print(f"{key['problem']}:", flush=True)
                    traceback.print_exc()
                    right = False
                bench = None
                gc.collect()
                torch.cuda.empty_cache()
    print(tables(kept.new))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
