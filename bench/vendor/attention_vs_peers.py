#!/usr/bin/env python3
"""Compares attention with its peers: PyTorch's SDPA with each of its backends, FlexAttention compiled,
and FlashAttention 3 and 4, FlashInfer and cuDNN's frontend where they can be imported. All run in one
process by the protocol of rows_vs_pytorch.py: CUDA graph replays over rotating buffers larger than
three times the L2, on normal data, in turn, in a new random order every round. If a peer has several
ways to run a problem, one is selected in rounds that do not count. Ours is called through the C ABI;
it is tuned first if the cache has no exact record of the problem.

"first_us" is the answer to the first question about a problem, before it is tuned. "error" is that of
the worst row, |o - r| / |r|, against a reference in fp64 on up to 64 queries of each sequence. Flops
and bytes are of what queries see. A peer that does not run a problem has a row with the reason and
no time. So has one that crashes: the run goes on without it in a new process. So has a problem that
kernwright refuses: its peer is "unsupported". What a peer needs
besides the tensors of the problem, such as a plan or a mask, is made before the clock runs, but
gathering pages is not: a peer reads them where they lie, or not at all. A peer that takes no fp8
gets the same numbers in 16 bits, made before the clock runs, and its note says so.

A line of stdout ends with the seconds that its problem took. A run continues where the last one
stopped: problems that have rows of this commit are left out.

usage: attention_vs_peers.py --json FILE [--shapes NUMBER|CLASS,...] [--random N [--seed S]]
                             [--seconds N] [--budget N] [--cache DIR] [--bin FOLDER]
"""

import argparse
import ctypes
import datetime
import gc
import json
import math
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

DEVICE = "cuda"
ROUNDS = 15
EVERYTHING = "everything"  # crashed, and not one way alone
STARTED = "ATTENTION_VS_PEERS_STARTED"  # when, on the monotonic clock, the first process of a run began
SAMPLED = 64  # queries of a sequence that are compared with the reference
# Of the worst row. Weights and result are rounded to the dtype, which costs a row about one unit.
TOLERANCE = {"bf16": 2e-2, "fp16": 4e-3, "fp8_e4m3": 0.13}


def problem_text(batch, heads, kv_heads, q_len, kv_len, head_dim, more="mask=causal", dtype="bf16"):
    return (f"attention batch={batch} heads={heads} kv_heads={kv_heads} q_len={q_len} kv_len={kv_len}"
            f" head_dim={head_dim} dtype={dtype} {more}").strip()


PAGED = "lengths=kv cache=paged page="
# Number -> class, problem. A, B: long prefill of head_dim 128, causal and full. C, D, E: heads of 64,
# of 192 and 256, of 96. F: short prefill and chunks. G: windows. H: ragged. I, J: decode of more and
# of less than 128 MB. K: drafted tokens. L: small pages. M, N: fp8 caches, fp8 everywhere.
SHAPES = {
    1: ("A", problem_text(4, 32, 32, 4096, 4096, 128)),
    2: ("B", problem_text(4, 32, 32, 4096, 4096, 128, "")),
    3: ("A", problem_text(2, 32, 8, 8192, 8192, 128)),
    4: ("A", problem_text(1, 32, 8, 16384, 16384, 128)),
    5: ("A", problem_text(1, 64, 8, 32768, 32768, 128)),
    6: ("C", problem_text(8, 16, 16, 2048, 2048, 64)),
    7: ("C", problem_text(8, 16, 16, 2048, 2048, 64, "")),
    8: ("D", problem_text(4, 16, 16, 4096, 4096, 256)),
    9: ("D", problem_text(1, 128, 128, 4096, 4096, 192, "head_dim_v=128 mask=causal")),
    10: ("E", problem_text(2, 32, 32, 4096, 4096, 96)),
    11: ("F", problem_text(32, 16, 16, 512, 512, 128)),
    12: ("F", problem_text(16, 32, 8, 1024, 1024, 128)),
    13: ("F", problem_text(2, 32, 8, 512, 4096, 128)),
    14: ("G", problem_text(2, 64, 8, 8192, 8192, 64, "mask=window window=128 sink=head")),
    15: ("H", problem_text(32, 32, 8, 4096, 4096, 128,
                           "q_total=32768 kv_total=32768 lengths=ragged mask=causal")),
    16: ("L", problem_text(8, 32, 8, 512, 4096, 128, f"{PAGED}16 mask=causal")),
    17: ("N", problem_text(1, 64, 8, 8192, 8192, 128, "out=bf16 mask=causal", "fp8_e4m3")),
    18: ("I", problem_text(16, 32, 8, 1, 4096, 128, "")),
    19: ("J", problem_text(1, 64, 8, 1, 32768, 128, "")),
    20: ("J", problem_text(1, 32, 4, 1, 4096, 128, "")),
    21: ("L", problem_text(32, 64, 8, 1, 8192, 64, f"{PAGED}16 sink=head")),
    22: ("K", problem_text(8, 32, 8, 4, 8192, 128, f"{PAGED}64 mask=causal")),
    23: ("M", problem_text(1, 32, 4, 1, 65536, 128, "kv=fp8_e4m3")),
}


# Pure parts, which the tests run without a GPU.

def random_shapes(count, seed):
    """`count` shapes of the list's classes that the list does not have, like SHAPES."""
    chosen = random.Random(seed)

    def of_class(name):
        pick = chosen.choice
        heads, kv_heads = pick([(16, 16), (32, 8), (28, 4), (40, 8), (64, 8), (24, 24), (48, 8)])
        few, many = pick([1, 2, 3, 4]), pick([2, 4, 8, 12])
        length = 64 * chosen.randint(40, 160)
        if name in "AB":
            return problem_text(few, heads, kv_heads, length, length, 128,
                                "mask=causal" if name == "A" else "")
        if name == "C":
            return problem_text(few * 2, heads, kv_heads, length // 2, length // 2, 64,
                                pick(["", "mask=causal"]))
        if name == "D":
            more = pick(["head_dim_v=128 mask=causal", "mask=causal", ""])
            return problem_text(few, heads, kv_heads, length // 2, length // 2,
                                192 if "_v" in more else 256, more)
        if name == "E":
            return problem_text(few, heads, kv_heads, length // 2, length // 2, pick([72, 80, 96, 112]),
                                pick(["", "mask=causal"]))
        if name == "F":
            queries = chosen.randint(100, 1024)
            keys = pick([queries, queries + chosen.randint(500, 6000)])
            return problem_text(many, heads, kv_heads, queries, keys, pick([64, 128]))
        if name == "G":
            more = f"mask=window window={pick([64, 128, 512, 1024, 4096])}"
            return problem_text(few, heads, kv_heads, length, length, pick([64, 128]),
                                more + pick(["", " sink=head"]))
        if name == "H":
            batch = pick([8, 16, 48])
            total = batch * (length // 4)
            return problem_text(batch, heads, kv_heads, length, length, 128,
                                f"q_total={total} kv_total={total} lengths=ragged mask=causal")
        if name == "L":
            page = pick([16, 32, 64, 128])
            queries = pick([1, 128, 300, 512])
            return problem_text(many, heads, kv_heads, queries, length, pick([64, 128]),
                                f"kv_total={many * length * 3 // 4} {PAGED}{page} "
                                f"{'' if queries == 1 else 'mask=causal'}")
        if name == "K":
            return problem_text(many, heads, kv_heads, chosen.randint(2, 16), length, 128,
                                f"kv_total={many * length * 3 // 4} {PAGED}64 mask=causal")
        batch, keys = (16, length) if name == "I" else (pick([1, 2]), length)
        return problem_text(batch, heads, kv_heads, 1, keys, pick([64, 128]), "")

    names = "ABCDEFGHIJKL"
    shapes = {}
    while len(shapes) < count:
        name = names[len(shapes) % len(names)]
        text = of_class(name).strip()
        if all(text != other for _, other in [*SHAPES.values(), *shapes.values()]):
            shapes[101 + len(shapes)] = (name, text)
    return shapes


def wanted(number, name, shapes):
    """Whether a shape is among those of --shapes, which names numbers and classes."""
    return shapes is None or str(number) in shapes or name in shapes


def sequence_lengths(count, total, longest):
    """Lengths that draw.cu gives sequences of unequal length, in ascending order."""
    if total == count * longest:
        return [longest] * count
    power = longest * count / total
    before = [int(total * (rank / count) ** power) for rank in range(count + 1)]
    return [end - begin for begin, end in zip(before, before[1:])]


class Shape:
    """A problem with its defaults, and the lengths of its sequences."""

    def __init__(self, problem):
        _, values = rows.parse_problem(problem)
        self.batch, self.heads, self.q_len, self.kv_len = (
            values[name] for name in ("batch", "heads", "q_len", "kv_len"))
        self.kv_heads = values.get("kv_heads", self.heads)
        self.head_dim, self.dtype = values["head_dim"], values["dtype"]
        self.kv, self.out = values.get("kv", self.dtype), values.get("out", self.dtype)
        self.head_dim_v = values.get("head_dim_v", self.head_dim)
        self.mask, self.window = values.get("mask", "none"), values.get("window", 0)
        self.lengths, self.cache = values.get("lengths", "full"), values.get("cache", "contiguous")
        self.page = values.get("page", 16 if self.cache == "paged" else 1)
        self.has_sink = values.get("sink") == "head"
        shuffled = random.Random(problem)
        order = shuffled.sample(range(self.batch), self.batch)
        q = sequence_lengths(self.batch, values.get("q_total", self.batch * self.q_len), self.q_len)
        kv = sequence_lengths(self.batch, values.get("kv_total", self.batch * self.kv_len), self.kv_len)
        self.q_lengths, self.kv_lengths = [q[i] for i in order], [kv[i] for i in order]

    @property
    def is_dense(self):
        return self.lengths == "full" and self.cache == "contiguous"

    @property
    def wide_dtype(self):
        """What peers get that take 16 bits alone."""
        return "bf16" if self.dtype == "fp8_e4m3" else self.dtype

    @property
    def is_masked(self):
        """Whether a query may not see every key of its sequence: one alone stands at the last."""
        return self.mask == "window" or (self.mask == "causal" and self.q_len > 1)

    def pairs(self):
        """Queries and keys that see each other, of one head."""
        return sum(visible_pairs(q, kv, self.mask, self.window)
                   for q, kv in zip(self.q_lengths, self.kv_lengths))

    def flops(self):
        return 2 * self.heads * self.pairs() * (self.head_dim + self.head_dim_v)

    def bytes(self):
        read = sum(min(kv, self.window + q - 1) if self.mask == "window" else kv
                   for q, kv in zip(self.q_lengths, self.kv_lengths))
        sizes = self.head_dim * rows.BYTES[self.dtype], self.head_dim_v * rows.BYTES[self.out]
        return (sum(self.q_lengths) * self.heads * sum(sizes) +
                read * self.kv_heads * (self.head_dim + self.head_dim_v) * rows.BYTES[self.kv])

    def sampled(self):
        """(sequence, its queries that are compared) of every sequence: the first, the last, others."""
        for number, count in enumerate(self.q_lengths):
            if count > 0:
                step = max(1, (count - 1) / (SAMPLED - 1))
                yield number, sorted({min(count - 1, round(i * step)) for i in range(SAMPLED)})


def visible_pairs(queries, keys, mask, window):
    """Of a sequence; query i stands at position i + keys - queries."""
    if mask == "none":
        return queries * keys
    seeing = min(queries, keys)  # the last ones; the first of them sees keys - seeing + 1
    ahead = keys - seeing
    short = max(0, min(seeing, window - 1 - ahead)) if mask == "window" else seeing
    return short * ahead + short * (short + 1) // 2 + (seeing - short) * window


def make_rows(problem, name, shape, result, commit):
    """One row per peer. `result` has "samples", {"ours": [us, ...], "first": ..., PEER: ...}, "errors"
    by the same names, "reasons" of those that were not timed, "notes" of those that were, and
    "configuration" and "seconds"."""
    middle = {label: statistics.median(values) for label, values in result["samples"].items()}
    ours, first = middle.get("ours"), middle.get("first")
    shared = {"class": name, "ours_us": ours, "first_us": first,
              "ours_tflops": shape.flops() / ours / 1e6 if ours else None,
              "ours_gbps": shape.bytes() / ours / 1e3 if ours else None,
              "error": result["errors"].get("ours"), "configuration": result["configuration"],
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
    nothing = dict.fromkeys(("ours_us", "first_us", "peer_us", "ratio", "error", "peer_error",
                             "configuration"))
    return {"problem": problem, "class": name, "peer": "unsupported", "note": reason, **nothing,
            "date": datetime.date.today().isoformat(), "kernwright": commit}


def table_line(number, new, seconds):
    """What stdout says of a problem: the best peer that is right, and the others."""
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
            f" {best} of the best of {peers}; error {first['error']:.1e}; {seconds:.0f} s")


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
    """Whether an error on the device has ended all use of it by this process."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


class Refused(Exception):
    """What a peer has no way to compute."""


def indices(torch, values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def offsets(lengths):
    sums = [0]
    for length in lengths:
        sums.append(sums[-1] + length)
    return sums


def widened(torch, t, dtype):
    """The inputs with those of fp8 in 16 bits."""
    wide = rows.torch_dtype(torch, dtype)
    return {name: x.to(wide) if x.dtype == torch.float8_e4m3fn else x for name, x in t.items()}


def page_table(shape, pages):
    """Every sequence's pages, scattered over the pool."""
    order = random.Random(pages).sample(range(pages), pages)
    columns = -(-shape.kv_len // shape.page)
    taken, table = 0, []
    for keys in shape.kv_lengths:
        used = -(-keys // shape.page)
        table.append(order[taken:taken + used] + [0] * (columns - used))
        taken += used
    return table


def draw(torch, shape, arguments):
    """The named inputs of a launch, from kw_describe's "arguments"."""
    inputs = {}
    for argument in arguments:
        name, extent = argument["name"], argument["extent"]
        if argument["scalar"] or argument["output"]:
            continue
        if argument["dtype"] != "int32":
            inputs[name] = torch.randn(extent, device=DEVICE).to(rows.torch_dtype(torch, argument["dtype"]))
            continue
        values = {"q_offsets": lambda: offsets(shape.q_lengths),
                  "kv_offsets": lambda: offsets(shape.kv_lengths), "kv_lengths": lambda: shape.kv_lengths,
                  "page_table": lambda: page_table(shape, inputs["k"].shape[0])}[name]()
        inputs[name] = indices(torch, values)
    return inputs


def keys_of(shape, t, name, number):
    """k or v of a sequence: [keys, kv_heads, elements]."""
    count, tensor = shape.kv_lengths[number], t[name]
    if shape.cache == "paged":
        used = -(-count // shape.page)
        return tensor[t["page_table"][number, :used].long()].flatten(0, 1)[:count]
    if shape.lengths == "ragged":
        begin = sum(shape.kv_lengths[:number])
        return tensor[0, begin:begin + count]
    return tensor[number, :count]


def first_token(shape, number):
    return sum(shape.q_lengths[:number]) if shape.lengths == "ragged" else number * shape.q_len


def reference(torch, shape, t):
    """The rows of the sampled queries in fp64: places among all tokens, and [places, heads, head_dim_v]."""
    group = shape.heads // shape.kv_heads
    q_tokens = t["q"].reshape(-1, shape.heads, shape.head_dim)
    places, results = [], []
    for number, queries in shape.sampled():
        keys, count = shape.kv_lengths[number], len(queries)
        here = [first_token(shape, number) + i for i in queries]
        q = q_tokens[here].double().view(count, shape.kv_heads, group, shape.head_dim)
        k, v = (keys_of(shape, t, name, number).double() for name in "kv")
        scores = torch.einsum("ihgd,jhd->ihgj", q, k) / math.sqrt(shape.head_dim)
        position = torch.tensor(queries, device=DEVICE)[:, None] + keys - shape.q_lengths[number]
        j = torch.arange(keys, device=DEVICE)[None, :]
        hidden = torch.zeros(count, keys, dtype=torch.bool, device=DEVICE)
        if shape.mask != "none":
            hidden |= j > position
        if shape.mask == "window":
            hidden |= j <= position - shape.window
        scores.masked_fill_(hidden[:, None, None, :], -math.inf)
        if shape.has_sink:
            sinks = t["sinks"].double().view(1, shape.kv_heads, group, 1).expand(count, -1, -1, 1)
            scores = torch.cat((scores, sinks), -1)
        weights = torch.softmax(scores, -1).nan_to_num(0)[..., :keys]  # who sees nothing gets nothing
        results.append(torch.einsum("ihgj,jhd->ihgd", weights, v).flatten(1, 2))
        places += here
    return places, torch.cat(results)


def worst_row(torch, shape, result, expected):
    """The largest |o - r| / |r| of a row; 1e30 for NaN, and where something is not the 0 it has to be."""
    places, r = expected
    o = result.reshape(-1, shape.heads, shape.head_dim_v).to(rows.torch_dtype(torch, shape.wide_dtype))
    o = o[places].double()
    off, size = (o - r).norm(dim=-1), r.norm(dim=-1)
    return float(torch.where(off == 0, off, off / size).nan_to_num(1e30, 1e30).max())


# The peers. Each maker gives a function of the named inputs that returns o with tokens outside and
# heads inside, or refuses. One that needs other inputs has them made by "prepare", once a set.

class Peer:
    def __init__(self, call, prepare=None, finish=None):
        self.call = call
        self.prepare = prepare or (lambda t: t)
        self.finish = finish or (lambda result: result)

    def of_wide_inputs(self, torch, dtype):
        """The same of inputs that are converted to 16 bits before the clock runs."""
        return Peer(self.call, lambda t: self.prepare(widened(torch, t, dtype)), self.finish)


def refuse_where(condition, reason):
    if condition:
        raise Refused(reason)


def visible_mask(torch, shape):
    """[batch or 1, 1, q_len, kv_len], true where a query sees a key."""
    keys = torch.tensor(shape.kv_lengths if shape.lengths == "kv" else [shape.kv_len], device=DEVICE)
    keys = keys[:, None, None, None]
    j = torch.arange(shape.kv_len, device=DEVICE)
    position = torch.arange(shape.q_len, device=DEVICE)[:, None] + keys - shape.q_len
    seen = (j < keys) & (j <= position) if shape.mask != "none" else (j < keys).expand(-1, 1, shape.q_len, -1)
    return seen


def sdpa(torch, shape, backend, form):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
    refuse_where(shape.cache == "paged", "SDPA has no pages")
    refuse_where(shape.has_sink, "SDPA has no sinks")
    refuse_where(shape.mask == "window", "SDPA has no windows, only a mask as large as the scores")
    chosen = {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_flash": SDPBackend.FLASH_ATTENTION,
              "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION}[backend]
    options = {"enable_gqa": True} if shape.heads != shape.kv_heads else {}
    if shape.is_masked and shape.lengths != "kv" and shape.q_lengths == shape.kv_lengths:
        options["is_causal"] = True
    elif shape.is_masked and shape.lengths == "full" and backend != "sdpa_cudnn":
        options["attn_mask"] = causal_lower_right(shape.q_len, shape.kv_len)
    elif shape.is_masked or shape.lengths == "kv":
        refuse_where(shape.lengths == "ragged", "SDPA has no ragged chunks")
        options["attn_mask"] = visible_mask(torch, shape)

    def call(t):
        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        with sdpa_kernel(chosen):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        return o.transpose(1, 2)

    if shape.lengths != "ragged":
        return Peer(call)
    if form == "nested":
        def nested(t):
            return {name: torch.nested.nested_tensor_from_jagged(
                t[name][0], t["q_offsets" if name == "q" else "kv_offsets"].long(), min_seqlen=1,
                max_seqlen=max(shape.q_lengths)) for name in "qkv"}
        return Peer(call, nested, lambda result: result.values())

    def padded(t):
        wide = {}
        for name, counts in (("q", shape.q_lengths), ("k", shape.kv_lengths), ("v", shape.kv_lengths)):
            parts = torch.split(t[name][0], counts)
            wide[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        return wide

    def unpadded(result):
        return torch.cat([result[i, :count] for i, count in enumerate(shape.q_lengths)])

    return Peer(call, padded, unpadded)


def sdpa_direct(torch, shape):
    """The kernels of SDPA's FlashAttention backend by the function below SDPA, which has windows,
    lengths and, in newer versions, pages."""
    refuse_where(shape.has_sink, "FlashAttention 2 has no sinks")
    operator = torch.ops.aten._flash_attention_forward
    options = {"window_size_left": shape.window - 1, "window_size_right": 0} if shape.mask == "window" else {}
    q_offsets = indices(torch, offsets(shape.q_lengths))
    kv_offsets = indices(torch, offsets([shape.kv_len] * shape.batch))
    if shape.cache == "paged":
        names = [argument.name for argument in operator.default._schema.arguments]
        refuse_where("block_table" not in names, "this PyTorch's FlashAttention has no pages")

    def call(t):
        q, k, v = t["q"], t["k"], t["v"]
        given = dict(options)
        bounds = None, None
        if shape.lengths == "ragged":
            bounds = t["q_offsets"], t.get("kv_offsets", kv_offsets)
        elif not shape.is_dense:
            bounds = q_offsets, kv_offsets
        if "kv_lengths" in t:
            given["seqused_k"] = t["kv_lengths"]
        if "page_table" in t:
            given["block_table"] = t["page_table"]
        elif bounds[0] is not None:
            k, v = k.flatten(0, 1), v.flatten(0, 1)
        if bounds[0] is not None:
            q = q.flatten(0, 1)
        return operator(q, k, v, *bounds, shape.q_len, shape.kv_len, 0.0, shape.is_masked, False, **given)[0]

    return Peer(call)


def flex(torch, shape):
    """FlexAttention; a ragged batch is one sequence of documents, pages are blocks of its mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    keys = torch.tensor(shape.kv_lengths, device=DEVICE)
    queries = torch.tensor(shape.q_lengths, device=DEVICE)

    def sees(position, j, count):
        seen = j < count
        if shape.mask != "none":
            seen = seen & (j <= position)
        if shape.mask == "window":
            seen = seen & (j > position - shape.window)
        return seen

    def mask_mod(b, h, i, j):
        return sees(i + keys[b] - shape.q_len, j, keys[b])

    def blocks(function, batch, q_len, kv_len, **options):
        # To compile the function takes seconds, and is needed only where its values are very many.
        return create_block_mask(function, batch, None, q_len, kv_len, device=DEVICE,
                                 _compile=(batch or 1) * q_len * kv_len > 1 << 28, **options)

    mask = None
    if shape.lengths == "ragged":
        refuse_where(shape.cache == "paged", "blocks are of pages or of documents")
        sequences = torch.arange(shape.batch, device=DEVICE)
        q_of, kv_of = sequences.repeat_interleave(queries), sequences.repeat_interleave(keys)
        q_first, kv_first = queries.cumsum(0) - queries, keys.cumsum(0) - keys

        def documents(b, h, i, j):
            number = q_of[i]
            position = i - q_first[number] + keys[number] - queries[number]
            return (number == kv_of[j]) & sees(position, j - kv_first[number], keys[number])

        mask = blocks(documents, None, len(q_of), len(kv_of))
    elif shape.cache == "paged":
        from torch.nn.attention.experimental._paged_attention import PagedAttention
        logical = blocks(mask_mod, shape.batch, shape.q_len, shape.kv_len, BLOCK_SIZE=(128, shape.page))
    elif shape.is_masked or shape.lengths == "kv":
        mask = blocks(mask_mod, shape.batch if shape.lengths == "kv" else None, shape.q_len, shape.kv_len)

    def attend(q, k, v, sinks, block_mask):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        gqa = shape.heads != shape.kv_heads
        if sinks is None:
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa).transpose(1, 2)
        o, lse = flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa, return_lse=True)
        share = torch.sigmoid(lse - sinks[:, None])
        return (o * share[..., None]).to(o.dtype).transpose(1, 2)

    compiled = torch.compile(attend, dynamic=False)

    def physical(t):
        pages = t["k"].shape[0]
        paged = PagedAttention(pages, shape.page, shape.batch, device=DEVICE)
        for number, count in enumerate(shape.kv_lengths):
            used = -(-count // shape.page)
            here = t["page_table"][number, :used].long()
            paged.page_table[number, :used] = here
            paged.physical_to_logical[number, here] = torch.arange(used, device=DEVICE)
        return paged.convert_logical_block_mask(logical)

    def prepare(t):
        nonlocal mask
        if shape.cache != "paged":
            return {**t, "block_mask": mask}
        mask = mask or physical(t)  # all sets have the same table
        return {**t, **{name: t[name].flatten(0, 1)[None] for name in "kv"}, "block_mask": mask}

    return Peer(lambda t: compiled(t["q"], t["k"], t["v"], t.get("sinks"), t["block_mask"]), prepare)


def window_of(shape, none):
    return (shape.window - 1, 0) if shape.mask == "window" else (none, none)


def flash_attention_3(torch, shape, form):
    import flash_attn_interface as flash
    refuse_where(shape.has_sink, "FlashAttention 3 has no sinks")
    options = {"causal": shape.is_masked, "window_size": window_of(shape, -1)}

    def call(t):
        if form == "cache":
            refuse_where(shape.lengths == "ragged", "a cache of equal numbers of queries")
            o = flash.flash_attn_with_kvcache(t["q"], t["k"], t["v"], cache_seqlens=t.get("kv_lengths"),
                                              page_table=t.get("page_table"), **options)
        elif shape.lengths == "ragged":
            refuse_where(shape.cache == "paged", "the other form has pages")
            o = flash.flash_attn_varlen_func(t["q"][0], t["k"][0], t["v"][0], t["q_offsets"],
                                             t["kv_offsets"], shape.q_len, shape.kv_len, **options)
        else:
            refuse_where(not shape.is_dense, "the other form has lengths")
            o = flash.flash_attn_func(t["q"], t["k"], t["v"], **options)
        return o[0] if isinstance(o, tuple) else o

    return Peer(call)


def flash_attention_4(torch, shape):
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func
    options = {"causal": shape.is_masked, "window_size": window_of(shape, None)}
    q_offsets = indices(torch, offsets(shape.q_lengths))

    def prepare(t):
        return {**t, "sinks": t["sinks"].to(torch.bfloat16)} if shape.has_sink else t

    def call(t):
        given = {**options, **({"learnable_sink": t["sinks"]} if shape.has_sink else {})}
        if shape.is_dense:
            o = flash_attn_func(t["q"], t["k"], t["v"], **given)
        else:
            k, v = (t[name] if shape.cache == "paged" or shape.lengths == "kv" else t[name][0] for name in "kv")
            o = flash_attn_varlen_func(
                t["q"].flatten(0, 1), k, v, cu_seqlens_q=q_offsets, cu_seqlens_k=t.get("kv_offsets"),
                seqused_k=t.get("kv_lengths"), page_table=t.get("page_table"), **given)
        return o[0] if isinstance(o, tuple) else o

    return Peer(call, prepare)


def flashinfer(torch, shape, form):
    """Ragged for prefill, and pages for all else: a contiguous cache is one of pages of 16 in order."""
    import flashinfer as library
    refuse_where(shape.has_sink, "the wrappers have no sinks")
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    dtype = rows.torch_dtype(torch, shape.wide_dtype)
    heads = shape.heads, shape.kv_heads, shape.head_dim
    options = {"window_left": shape.window - 1 if shape.mask == "window" else -1, "q_data_type": dtype,
               "kv_data_type": dtype}
    q_offsets = indices(torch, offsets(shape.q_lengths))
    if form == "ragged":
        refuse_where(shape.cache == "paged" or shape.lengths == "kv", "the other forms have lengths")
        wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        wrapper.plan(q_offsets, indices(torch, offsets(shape.kv_lengths)), *heads,
                     head_dim_vo=shape.head_dim_v, causal=shape.is_masked, **options)
        return Peer(lambda t: wrapper.run(*(t[name].flatten(0, 1) for name in "qkv")))
    page = shape.page if shape.cache == "paged" else 16
    refuse_where(shape.cache != "paged" and (shape.lengths == "ragged" or shape.kv_len % page != 0),
                 "the other form has these lengths")
    used = [-(-count // page) for count in shape.kv_lengths]
    pages = indices(torch, offsets(used))
    last = indices(torch, [count - (n - 1) * page if n else 0 for count, n in zip(shape.kv_lengths, used)])

    def planned(t):
        if shape.cache == "paged":
            table = torch.cat([t["page_table"][i, :n] for i, n in enumerate(used)])
            pools = {}
        else:
            columns = shape.kv_len // page
            table = torch.cat([torch.arange(n, device=DEVICE) + i * columns for i, n in enumerate(used)]).int()
            pools = {name: t[name].reshape(-1, page, shape.kv_heads, t[name].shape[-1]) for name in "kv"}
        if form == "decode":
            refuse_where(shape.q_len > 1, "one query a sequence")
            wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
            wrapper.plan(pages, table, last, *heads, page, **options)
        else:
            wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(q_offsets, pages, table, last, *heads, page, causal=shape.is_masked, **options)
        return {**t, **pools, "wrapper": wrapper}

    return Peer(lambda t: t["wrapper"].run(t["q"].flatten(0, 1), (t["k"], t["v"])), planned)


def cudnn_frontend(torch, shape):
    import cudnn
    refuse_where(shape.lengths == "ragged", "offsets of this graph are not written here")
    handle = cudnn.create_handle()
    narrow = shape.dtype == "fp8_e4m3"  # where o has 8 bits too, on Hopper
    types = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF,
             "fp8_e4m3": cudnn.data_type.FP8_E4M3}
    graph = cudnn.pygraph(io_data_type=types[shape.dtype], intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)

    def heads_first(batch, tokens, heads, size, label):
        return graph.tensor(name=label, dim=[batch, heads, tokens, size], data_type=types[shape.dtype],
                            stride=[tokens * heads * size, size, heads * size, 1])

    def small(label, dim, kind):
        stride = [math.prod(dim[i + 1:]) for i in range(4)]
        return graph.tensor(name=label, dim=dim, stride=stride, data_type=kind)

    columns = -(-shape.kv_len // shape.page)
    outer = (shape.batch * columns, shape.page) if shape.cache == "paged" else (shape.batch, shape.kv_len)
    nodes = {"q": heads_first(shape.batch, shape.q_len, shape.heads, shape.head_dim, "q"),
             "k": heads_first(*outer, shape.kv_heads, shape.head_dim, "k"),
             "v": heads_first(*outer, shape.kv_heads, shape.head_dim_v, "v")}
    options, integer = {}, cudnn.data_type.INT32
    if shape.lengths == "kv" or shape.cache == "paged":
        nodes["q_counts"] = small("q_counts", [shape.batch, 1, 1, 1], integer)
        nodes["kv_lengths"] = small("kv_lengths", [shape.batch, 1, 1, 1], integer)
        options.update(use_padding_mask=True, seq_len_q=nodes["q_counts"], seq_len_kv=nodes["kv_lengths"])
    if shape.cache == "paged":
        nodes["page_table"] = small("page_table", [shape.batch, 1, columns, 1], integer)
        options.update(paged_attention_k_table=nodes["page_table"], paged_attention_v_table=nodes["page_table"],
                       paged_attention_max_seq_len_kv=shape.kv_len)
    if shape.is_masked:
        options.update(diagonal_alignment=cudnn.diagonal_alignment.BOTTOM_RIGHT, diagonal_band_right_bound=0)
    if shape.mask == "window":
        options["diagonal_band_left_bound"] = shape.window
    if shape.has_sink:
        nodes["sinks"] = small("sinks", [1, shape.heads, 1, 1], cudnn.data_type.FLOAT)
        options["sink_token"] = nodes["sinks"]
    given = dict(name="sdpa", q=nodes["q"], k=nodes["k"], v=nodes["v"],
                 attn_scale=1 / math.sqrt(shape.head_dim))
    if narrow:
        refuse_where(options.keys() - {"diagonal_alignment", "diagonal_band_right_bound"},
                     "of fp8 only full and causal attention is written here")
        if shape.is_masked:
            square = shape.q_len == shape.kv_len
            given["use_causal_mask" if square else "use_causal_mask_bottom_right"] = True
        units = ["descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"]
        for label in units:
            nodes[label] = small(label, [1, 1, 1, 1], cudnn.data_type.FLOAT)
        o, _, *largest = graph.sdpa_fp8(**given, is_inference=True, **{label: nodes[label] for label in units})
        for x in largest:
            x.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(cudnn.data_type.FLOAT)
    else:
        (o, _), largest, units = graph.sdpa(**given, generate_stats=False, **options), [], []
    tokens = shape.heads * shape.head_dim_v
    o.set_output(True).set_dim([shape.batch, shape.heads, shape.q_len, shape.head_dim_v]).set_stride(
        [shape.q_len * tokens, shape.head_dim_v, tokens, 1])
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device=DEVICE)
    unit = torch.ones(1, 1, 1, 1, device=DEVICE)
    spare = {x: torch.empty(1, 1, 1, 1, device=DEVICE) for x in largest}
    counts = indices(torch, shape.q_lengths)
    keys = indices(torch, shape.kv_lengths)

    def call(t):
        result = torch.empty(shape.batch, shape.q_len, shape.heads, shape.head_dim_v, device=DEVICE,
                             dtype=rows.torch_dtype(torch, shape.dtype))
        given = {"q_counts": counts, "kv_lengths": keys, **dict.fromkeys(units, unit), **t}
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute({**{node: given[label] for label, node in nodes.items()}, **spare, o: result},
                      workspace, handle=handle)
        return result

    return Peer(call)


def makers(torch, shape):
    """Label -> what makes the peer. "sdpa_flash:direct" is a way of the peer sdpa_flash."""
    found = {}
    for backend in ("sdpa_cudnn", "sdpa_flash", "sdpa_efficient"):
        forms = ("nested", "padded") if shape.lengths == "ragged" else ("dense",)
        for form in forms:
            found[f"{backend}:{form}"] = lambda backend=backend, form=form: sdpa(torch, shape, backend, form)
    found["sdpa_flash:direct"] = lambda: sdpa_direct(torch, shape)
    found["flex:compiled"] = lambda: flex(torch, shape)
    for form in ("plain", "cache"):
        found[f"flash_attention_3:{form}"] = lambda form=form: flash_attention_3(torch, shape, form)
    found["flash_attention_4:cute"] = lambda: flash_attention_4(torch, shape)
    for form in ("ragged", "paged", "decode"):
        found[f"flashinfer:{form}"] = lambda form=form: flashinfer(torch, shape, form)
    found["cudnn_frontend:graph"] = lambda: cudnn_frontend(torch, shape)
    return found


# Ours.

class Baked:
    """A kernel baked once for each set; the counters that its workspace keeps are then zeroed once,
    where kw_launch zeroes them at every launch."""

    def __init__(self, torch, library, kernel):
        self.torch, self.library, self.kernel, api = torch, library, kernel, library.api
        pointer = ctypes.c_void_p
        api.kw_bake.argtypes = [pointer, ctypes.POINTER(pointer), ctypes.c_size_t,
                                ctypes.POINTER(ctypes.c_double), ctypes.c_size_t, ctypes.POINTER(pointer)]
        for function in (api.kw_launch_baked, api.kw_add_to_capture):
            function.argtypes = [pointer, pointer]
        api.kw_release_baked.argtypes = [pointer]
        api.kw_release_baked.restype = None
        self.tensors = [a for a in library.describe(kernel)["arguments"] if not a["scalar"]]
        self.made = {}

    def bake(self, t):
        results = {a["name"]: self.torch.empty(a["extent"], dtype=rows.torch_dtype(self.torch, a["dtype"]),
                                               device=DEVICE) for a in self.tensors if a["output"]}
        held = [results.get(a["name"], t.get(a["name"])) for a in self.tensors]
        pointers = (ctypes.c_void_p * len(held))(*[tensor.data_ptr() for tensor in held])
        baked = ctypes.c_void_p()
        self.library.expect(self.library.api.kw_bake(self.kernel, pointers, len(held), None, 0,
                                                     ctypes.byref(baked)))
        return baked, tuple(results.values())

    def __call__(self, t):
        if id(t) not in self.made:
            self.made[id(t)] = self.bake(t)
        baked, results = self.made[id(t)]
        stream, api = self.torch.cuda.current_stream().cuda_stream, self.library.api
        capturing = self.torch.cuda.is_current_stream_capturing()
        self.library.expect((api.kw_add_to_capture if capturing else api.kw_launch_baked)(baked, stream))
        return results

    def release(self):
        for baked, _ in self.made.values():
            self.library.api.kw_release_baked(baked)
        self.made.clear()


# Measuring.

def rounds_for(contestants, most=ROUNDS, seconds=8):
    """As many rounds as fit, and at least five."""
    one = sum(contestant.sample() * contestant.calls for contestant in contestants.values()) / 1e6
    return max(5, min(most, int(seconds / max(one, 1e-6))))


def measure(torch, library, newcomer, problem, seconds, crashed):
    """What make_rows takes of one problem. `newcomer` is a library whose cache is empty; `crashed` has
    the ways that are known to crash, with the reason. Raises Crashed for another one."""
    started = time.monotonic()
    shape = Shape(problem)
    kernel, first = library.kernel(problem, seconds), ctypes.c_void_p()
    newcomer.expect(newcomer.api.kw_get_best_kernel(newcomer.service, problem.encode(), ctypes.byref(first)))
    description = library.describe(kernel)
    arguments = description["arguments"]
    sets = [draw(torch, shape, arguments) for _ in range(rows.set_count(rows.tensor_bytes(arguments)))]
    expected = reference(torch, shape, widened(torch, sets[0], shape.wide_dtype))
    baked = Baked(torch, library, kernel)
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
            try:
                peer = maker()
                is_wide = shape.kv == "fp8_e4m3" and not label.startswith(("ours", "first")) and not (
                    label.startswith("cudnn_frontend") and shape.dtype == shape.kv)
                if is_wide:
                    peer = peer.of_wide_inputs(torch, shape.wide_dtype)
                    wide.add(label)
                prepared = [peer.prepare(t) for t in sets]
                result = peer.call(prepared[0])
                result = result[0] if isinstance(result, tuple) else result
                errors[label] = worst_row(torch, shape, peer.finish(result), expected)
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
    for held, api in ((kernel, library.api), (first, newcomer.api)):
        api.kw_release(held)
    result["seconds"] = time.monotonic() - started
    return shape, result, errors[ways["ours"]] > limit


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
    parser.add_argument("--bin", type=pathlib.Path, help="folder of kernwright; lib/ lies beside it")
    arguments = parser.parse_args()
    started = float(os.environ.get(STARTED, time.monotonic()))

    parents = pathlib.Path(__file__).resolve().parents[:3]
    bins = [arguments.bin] if arguments.bin else [*(p / "build/bin" for p in parents), *(p / "bin" for p in parents)]
    program = rows.find("kernwright", bins) or sys.exit(f"no kernwright in {', '.join(map(str, bins))}: say --bin")
    library_path = rows.find("libkernwright.so.0", [program.parents[1] / "lib"]) or sys.exit(
        f"no libkernwright.so.0 in {program.parents[1] / 'lib'}")
    listed = random_shapes(arguments.random, arguments.seed) if arguments.random else SHAPES
    only = arguments.shapes and arguments.shapes.split(",")
    problems = [(number, *entry) for number, entry in listed.items() if wanted(number, entry[0], only)]
    try:
        import torch
    except ImportError:
        sys.stderr.write("PyTorch is not installed\n")
        return 77
    warnings.simplefilter("ignore")  # why a peer refuses is in its row
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU\n")
        return 77

    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True).stdout
    commit = version.partition("(")[2].partition(")")[0]
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
        library = rows.Library(library_path, arguments.cache)
        newcomer = rows.Library(library_path, empty)
        for number, name, problem in problems:
            crashed = crashes.get(problem, {})
            if rows.has_current(document["rows"], problem, commit) or EVERYTHING in crashed:
                failed = failed or EVERYTHING in crashed
                continue
            if time.monotonic() - started > arguments.budget:
                print("the budget is spent: run again to go on")
                break
            gc.collect()
            torch.cuda.empty_cache()
            begun = time.monotonic()
            reason = refusal(program, problem)
            if reason:
                new = [unsupported_row(problem, name, reason, commit)]
            else:
                try:
                    shape, result, wrong = measure(torch, library, newcomer, problem, arguments.seconds, crashed)
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
                failed = failed or wrong
                new = make_rows(problem, name, shape, result, commit)
            for row in new:
                document["rows"] = rows.merge(document["rows"], row)
            write()
            print(table_line(number, new, time.monotonic() - begun), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
