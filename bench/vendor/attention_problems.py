"""The problems of attention_vs_peers.py: what they are, their inputs and a reference."""

import math
import random

import rows_vs_pytorch as rows

DEVICE = "cuda"
SAMPLED = 64  # queries of a sequence that are compared with the reference


def problem_text(batch, heads, kv_heads, q_len, kv_len, head_dim, more="mask=causal", dtype="bf16"):
    return (f"attention batch={batch} heads={heads} kv_heads={kv_heads} q_len={q_len} kv_len={kv_len}"
            f" head_dim={head_dim} dtype={dtype} {more}").strip()


PAGED = "lengths=kv cache=paged page="
# Number -> class, problem. A, B: long prefill of head_dim 128, causal and full. C, D, E: heads of 64,
# of 192 and 256, of 96. F: short prefill and chunks. G: windows. H: ragged. I, J: decode of more and
# of less than 128 MB. K: drafted tokens. L: small pages. M, N: fp8 caches, fp8 everywhere.
# O: what no peer is called with, compared with the reference alone. P: masks and biases that are tensors,
# and masks from the first key on, beside SDPA's backends.
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
    24: ("O", problem_text(8, 32, 8, 1, 4096, 128, "kv=fp8_e4m3 descale=head")),
    25: ("O", problem_text(4, 32, 8, 2048, 2048, 128, "mask=causal layout=bhsd lse=natural")),
    26: ("O", problem_text(4, 32, 8, 1024, 1024, 128, "mask=causal softcap=tanh")),
    27: ("O", problem_text(4, 32, 8, 1024, 1024, 128, "mask=causal bias=alibi lse=base2")),
    28: ("O", problem_text(16, 32, 8, 1, 4096, 128, "lengths=kv append=norm_rope")),
    29: ("O", problem_text(16, 32, 8, 1, 4096, 128, "kv_total=32768 lengths=kv schedule=given slots=33")),
    30: ("O", problem_text(4, 32, 8, 1024, 1024, 128, "mask=causal ldq=6144 ldk=6144 ldv=6144")),
    31: ("P", problem_text(4, 32, 32, 2048, 2048, 128, "bias_heads=1 bias=boolean")),
    32: ("P", problem_text(4, 32, 32, 4096, 4096, 128, "bias_batch=1 bias_heads=1 bias=additive")),
    33: ("P", problem_text(2, 16, 16, 2048, 2048, 64, "bias=additive")),
    34: ("P", problem_text(16, 16, 16, 1024, 1024, 64, "bias_heads=1 bias_q=1 bias=boolean")),
    35: ("P", problem_text(4, 16, 16, 1024, 1024, 64, "bias_batch=1 bias_dtype=fp32 bias=additive")),
    36: ("P", problem_text(4, 32, 8, 1024, 4096, 128, "mask=causal_first")),
    37: ("P", problem_text(16, 32, 8, 1, 4096, 128, "bias_heads=1 bias=boolean")),
    38: ("P", problem_text(8, 16, 16, 777, 777, 64, "bias_heads=1 bias=additive")),
    39: ("P", problem_text(2, 32, 8, 512, 4096, 128, "bias_heads=1 bias=boolean")),
    40: ("P", problem_text(8, 16, 16, 2048, 2048, 64, "bias_heads=1 bias=boolean")),
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
    """Returns whether --shapes has a shape. --shapes names numbers and classes."""
    return shapes is None or str(number) in shapes or name in shapes


def sequence_lengths(count, total, longest):
    """Returns the lengths of draw.cu for sequences of unequal length, in ascending order."""
    if total == count * longest:
        return [longest] * count
    power = longest * count / total
    before = [int(total * (rank / count) ** power) for rank in range(count + 1)]
    return [end - begin for begin, end in zip(before, before[1:])]


# The names that the reference knows. Numbers of the last two change no result.
DIMS = {"batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "head_dim_v", "q_total", "kv_total", "page",
        "pages", "window", "slots", "ldq", "ldk", "ldv", "ldo", "ldk_new", "ldv_new", "bias_batch", "bias_heads",
        "bias_q", "ldbias", "ldbias_head", "ldbias_batch"}
FLAGS = {"layout": "bshd", "lengths": "full", "cache": "contiguous", "mask": "none", "softcap": "none",
         "bias": "none", "sink": "none", "lse": "none", "descale": "none", "invariant": "none",
         "schedule": "none", "append": "none", "pairs": "halves"}
DTYPES = {"dtype", "kv", "out", "bias_dtype"}
CAP, EPS = 50, 1e-6  # the operation's defaults


class Shape:
    """A problem with its defaults, and the lengths of its sequences."""

    def __init__(self, problem):
        _, values = rows.parse_problem(problem)
        if unknown := values.keys() - DIMS - FLAGS.keys() - DTYPES:
            raise ValueError(f"the reference does not know {', '.join(sorted(unknown))}")
        self.flags = {name: values.get(name, default) for name, default in FLAGS.items()}
        self.slots = values.get("slots", 1)
        self.batch, self.heads, self.q_len, self.kv_len = (
            values[name] for name in ("batch", "heads", "q_len", "kv_len"))
        self.kv_heads = values.get("kv_heads", self.heads)
        self.head_dim, self.dtype = values["head_dim"], values["dtype"]
        self.kv, self.out = values.get("kv", self.dtype), values.get("out", self.dtype)
        self.head_dim_v = values.get("head_dim_v", self.head_dim)
        self.mask, self.window = self.flags["mask"], values.get("window", 0)
        self.lengths, self.cache = self.flags["lengths"], self.flags["cache"]
        self.layout, self.append = self.flags["layout"], self.flags["append"]
        self.page = values.get("page", 16 if self.cache == "paged" else 1)
        self.has_sink = self.flags["sink"] == "head"
        self.is_biased = self.flags["bias"] in ("boolean", "additive")
        self.bias_bytes = 0
        if self.is_biased:
            rows_of_bias = (values.get("bias_batch", self.batch) * values.get("bias_heads", self.heads) *
                            values.get("bias_q", self.q_len))
            element = rows.BYTES["bool" if self.flags["bias"] == "boolean" else values.get("bias_dtype", self.dtype)]
            self.bias_bytes = rows_of_bias * self.kv_len * element
        # Flags and dims with which no peer is called here.
        self.beyond_peers = [f"{name}={self.flags[name]}" for name in (
            "layout", "softcap", "bias", "descale", "append")
            if self.flags[name] != FLAGS[name] and not (name == "bias" and self.is_biased)]
        self.beyond_peers += [name for name in sorted(DIMS) if name.startswith("ld") and name in values]
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
        """The dtype of peers that take only 16 bits."""
        return "bf16" if self.dtype == "fp8_e4m3" else self.dtype

    @property
    def is_masked(self):
        """Returns whether a query may not see every key of its sequence: a single query is at the last one, and
        sees all."""
        return self.mask in ("window", "causal_first") or (self.mask == "causal" and self.q_len > 1)

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
        return (self.bias_bytes + sum(self.q_lengths) * self.heads * sum(sizes) +
                read * self.kv_heads * (self.head_dim + self.head_dim_v) * rows.BYTES[self.kv])

    def sampled(self):
        """(sequence, its queries that are compared) of every sequence: the first, the last, others."""
        for number, count in enumerate(self.q_lengths):
            if count > 0:
                step = max(1, (count - 1) / (SAMPLED - 1))
                yield number, sorted({min(count - 1, round(i * step)) for i in range(SAMPLED)})


def visible_pairs(queries, keys, mask, window):
    """Counts the pairs of one sequence; query i is at position i + keys - queries."""
    if mask == "none":
        return queries * keys
    if mask == "causal_first":
        return sum(min(i + 1, keys) for i in range(queries))
    seeing = min(queries, keys)  # the last ones; the first of them sees keys - seeing + 1
    ahead = keys - seeing
    short = max(0, min(seeing, window - 1 - ahead)) if mask == "window" else seeing
    return short * ahead + short * (short + 1) // 2 + (seeing - short) * window


def indices(torch, values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def offsets(lengths):
    sums = [0]
    for length in lengths:
        sums.append(sums[-1] + length)
    return sums


def widened(torch, t, dtype):
    """Returns the inputs, with the fp8 ones in 16 bits."""
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
    """The named inputs of a launch, from a kernel's "arguments"."""
    inputs = {}
    for argument in arguments:
        name, extent = argument["name"], argument["extent"]
        is_cache = name in ("k", "v")  # which an append writes too
        if argument["scalar"] or name == "work" or (argument["output"] and not is_cache):
            continue
        if argument["dtype"] == "bool":
            inputs[name] = strided(torch, extent, argument["strides"], "fp32") < 1
            continue
        if argument["dtype"] != "int32":
            inputs[name] = strided(torch, extent, argument["strides"], argument["dtype"])
            if name.endswith("_descale"):
                inputs[name] = inputs[name].abs() + 0.5
            continue
        values = {"q_offsets": lambda: offsets(shape.q_lengths),
                  "kv_offsets": lambda: offsets(shape.kv_lengths), "kv_lengths": lambda: shape.kv_lengths,
                  "page_table": lambda: page_table(shape, inputs["k"].shape[0])}[name]()
        inputs[name] = indices(torch, values)
    return inputs


def strided(torch, extent, strides, dtype):
    """Returns normal numbers in a tensor whose rows may have gaps between them."""
    size = 1 + sum((count - 1) * stride for count, stride in zip(extent, strides))
    return torch.randn(size, device=DEVICE).to(rows.torch_dtype(torch, dtype)).as_strided(extent, strides)


def schedule_problem(shape):
    """The problem whose result is the work list of an attention with schedule=given."""
    window = f" window={shape.window}" if shape.mask == "window" else ""
    return (f"attention_schedule batch={shape.batch} slots={shape.slots} q_len={shape.q_len} kv_len={shape.kv_len}"
            f" q_total={sum(shape.q_lengths)} kv_total={sum(shape.kv_lengths)}{window}"
            f" lengths={shape.lengths} cache={shape.cache} mask={shape.mask}")


def tokens_first(shape, x):
    """A view of q, k, v, o or of a new token with tokens outside and heads inside."""
    return x.transpose(1, 2) if shape.layout == "bhsd" else x


def rotated(torch, shape, t, x, norm, positions):
    """New heads as they meet keys: [batch, heads, head_dim], at a position each."""
    y = x.double()
    if shape.append == "norm_rope":
        y = y * (y.square().mean(-1, keepdim=True) + EPS).rsqrt() * t[norm].double()
    cosine, sine = (t[name][positions].double()[:, None] for name in ("cosine", "sine"))
    halves = shape.flags["pairs"] == "halves"
    first, second = y.chunk(2, -1) if halves else (y[..., 0::2], y[..., 1::2])
    turned = first * cosine - second * sine, second * cosine + first * sine
    y = torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)
    return y.to(x.dtype).double()


def keys_of(shape, t, name, number):
    """k or v of a sequence: [keys, kv_heads, elements]."""
    count, tensor = shape.kv_lengths[number], tokens_first(shape, t[name])
    if shape.cache == "paged":
        used = -(-count // shape.page)
        return tensor[t["page_table"][number, :used].long()].flatten(0, 1)[:count]
    if shape.lengths == "ragged":
        begin = sum(shape.kv_lengths[:number])
        return tensor[0, begin:begin + count]
    return tensor[number, :count]


def rows_of_bias(shape, bias, number, queries):
    """The rows of a bias for some queries of a sequence: [queries, kv_heads, group, keys], of which some axes
    are 1."""
    if bias is None:
        return None
    of_heads = bias[min(number, bias.shape[0] - 1)]
    of_queries = of_heads[:, queries if of_heads.shape[1] > 1 else [0], :shape.kv_lengths[number]].transpose(0, 1)
    heads = of_queries.shape[1]
    return of_queries.unflatten(1, (shape.kv_heads, heads // shape.kv_heads) if heads > 1 else (1, 1))


def first_token(shape, number):
    return sum(shape.q_lengths[:number]) if shape.lengths == "ragged" else number * shape.q_len


def reference(torch, shape, t):
    """The rows of the sampled queries in fp64: places among all tokens, [places, heads, head_dim_v], and
    the logarithms of the sums, [places, heads]."""
    group = shape.heads // shape.kv_heads
    q_tokens = tokens_first(shape, t["q"]).reshape(-1, shape.heads, shape.head_dim)
    places, results, logarithms = [], [], []
    last = torch.tensor(shape.kv_lengths, device=DEVICE).clamp(min=1) - 1
    if shape.append != "none":
        q_tokens = rotated(torch, shape, t, q_tokens, "q_norm", last)
        new_keys = rotated(torch, shape, t, tokens_first(shape, t["k_new"])[:, 0], "k_norm", last)
        new_values = tokens_first(shape, t["v_new"])[:, 0].double()
    for number, queries in shape.sampled():
        keys, count = shape.kv_lengths[number], len(queries)
        here = [first_token(shape, number) + i for i in queries]
        q = q_tokens[here].double().view(count, shape.kv_heads, group, shape.head_dim)
        k, v = (keys_of(shape, t, name, number).double() for name in "kv")
        if shape.append != "none" and keys > 0:
            k, v = (torch.cat((x[:-1], new[number][None])) for x, new in ((k, new_keys), (v, new_values)))
        if shape.flags["descale"] == "head":
            k, v = (x * t[f"{name}_descale"][number].double()[:, None] for name, x in (("k", k), ("v", v)))
            if "q_descale" in t:
                q = q * t["q_descale"][number].double()[:, None, None]
        scores = torch.einsum("ihgd,jhd->ihgj", q, k) / math.sqrt(shape.head_dim)
        position = torch.tensor(queries, device=DEVICE)[:, None]
        if shape.mask != "causal_first":
            position = position + keys - shape.q_lengths[number]
        j = torch.arange(keys, device=DEVICE)[None, :]
        if shape.flags["softcap"] == "tanh":
            scores = CAP * torch.tanh(scores / CAP)
        if shape.flags["bias"] == "alibi":
            slopes = t["slopes"].double().view(1, shape.kv_heads, group, 1)
            scores = scores - slopes * (position - j).abs()[:, None, None, :]
        hidden = torch.zeros(count, keys, dtype=torch.bool, device=DEVICE)
        if shape.mask != "none":
            hidden |= j > position
        if shape.mask == "window":
            hidden |= j <= position - shape.window
        scores.masked_fill_(hidden[:, None, None, :], -math.inf)
        if shape.is_biased:
            seen, bias = (rows_of_bias(shape, t.get(name), number, queries) for name in ("seen", "bias"))
            if seen is not None:
                scores.masked_fill_(~seen, -math.inf)
            if bias is not None:
                scores += bias.double()
        if shape.has_sink:
            sinks = t["sinks"].double().view(1, shape.kv_heads, group, 1).expand(count, -1, -1, 1)
            scores = torch.cat((scores, sinks), -1)
        weights = torch.softmax(scores, -1).nan_to_num(0)[..., :keys]  # who sees nothing gets nothing
        results.append(torch.einsum("ihgj,jhd->ihgd", weights, v).flatten(1, 2))
        logarithms.append(torch.logsumexp(scores, -1).flatten(1, 2))
        places += here
    return places, torch.cat(results), torch.cat(logarithms)


def worst_row(torch, shape, result, expected):
    """Returns the largest |o - r| / |r| of a row; 1e30 for NaN, and if something that must be 0 is not.
    `result` has tokens outside and heads inside."""
    places, r, _ = expected
    o = result.reshape(-1, shape.heads, shape.head_dim_v).to(rows.torch_dtype(torch, shape.wide_dtype))
    o = o[places].double()
    off, size = (o - r).norm(dim=-1), r.norm(dim=-1)
    return float(torch.where(off == 0, off, off / size).nan_to_num(1e30, 1e30).max())


def worst_logarithm(torch, shape, lse, expected):
    """Returns the largest error of a logarithm, relative to 1 + its size; 1e30 for NaN, and if only one is
    infinite."""
    places, _, r = expected
    unit = math.log(2) if shape.flags["lse"] == "base2" else 1.0
    given = lse.transpose(1, 2).reshape(-1, shape.heads)[places].double() * unit
    off = torch.where(given == r, 0.0, (given - r).abs() / (1 + r.abs()))
    return float(off.nan_to_num(1e30, 1e30).max())


def worst_new_entry(torch, shape, t, expected_of):
    """The largest error of what an append wrote to the caches, |x - r| / |r| of a head. `expected_of` are
    the inputs before."""
    worst = 0.0
    last = torch.tensor(shape.kv_lengths, device=DEVICE).clamp(min=1) - 1
    new = {"k": rotated(torch, shape, expected_of, tokens_first(shape, expected_of["k_new"])[:, 0], "k_norm", last),
           "v": tokens_first(shape, expected_of["v_new"])[:, 0].double()}
    for number, count in enumerate(shape.kv_lengths):
        for name in "kv" if count > 0 else "":
            off = (keys_of(shape, t, name, number)[-1].double() - new[name][number]).norm(dim=-1)
            worst = max(worst, float((off / new[name][number].norm(dim=-1)).nan_to_num(1e30, 1e30).max()))
    return worst
