#!/usr/bin/env python3
"""Random calls of every operation against PyTorch on a GPU: shapes, strides, dtypes, streams, captures
and calls that are wrong. KERNWRIGHT_RANDOM_CALLS says how many (300), KERNWRIGHT_SEED which."""

import concurrent.futures
import math
import os
import random
import threading
import unittest

try:
    import torch
    from torch.nn import functional
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

CALLS = int(os.environ.get("KERNWRIGHT_RANDOM_CALLS", "300"))
SEED = int(os.environ.get("KERNWRIGHT_SEED", "1"))
THREADS = 12


FP8_SLACK = 2.0 ** -11  # what tensor cores leave of sums of fp8
BLOCK = 128


class Mismatch(Exception):
    pass


def roundoff(dtype):
    return torch.finfo(dtype).eps


def compare(what, result, expected, scale, slack=2e-5):
    """`expected` is exact to fp32; `scale` bounds the sum of the absolute terms of each element, of
    which the sum may be off by `slack`."""
    allowed = roundoff(result.dtype) * expected.abs() + slack * scale + 1e-6
    excess = ((result.float() - expected).abs() - allowed).max().item()
    if not excess <= 0:
        raise Mismatch(f"{what}: {excess} beyond the bound")


class Case:
    """One random call. `chooser` decides everything, so that a case can be repeated by its seed."""

    def __init__(self, seed):
        self.chooser = random.Random(seed)
        self.dtype = self.chooser.choice([torch.bfloat16, torch.float16])
        self.generator = torch.Generator(device="cuda").manual_seed(seed)
        self.seed = seed

    def tensor(self, *shape, dtype=None, scale=1.0):
        values = torch.randn(*shape, generator=self.generator, device="cuda")
        return (values * scale).to(dtype or self.dtype)

    def size(self, most, step=8):
        """Small sizes and large ones alike, of whole steps."""
        return max(step, int(math.exp(self.chooser.uniform(0, math.log(most)))) // step * step)

    def rows(self, *leading, columns, gap):
        """An array whose rows may be parts of longer ones."""
        extra = self.chooser.choice([0, 8, 64]) if gap else 0
        return self.tensor(*leading, columns + extra)[..., :columns]

    def leading(self, most):
        count = self.chooser.choice([1, 1, 2])
        if count == 1:
            return (self.size(most, 1),)
        return (self.chooser.randint(1, 4), self.size(most // 4, 1))

    def run(self, name):
        getattr(self, name)()

    def linear(self):
        n, k = self.size(1024), self.size(1024)
        x = self.rows(*self.leading(256), columns=k, gap=True)
        weight = self.tensor(n, k, scale=k ** -0.5)
        if self.chooser.random() < 0.3:
            weight = weight.t().contiguous().t()
        bias = self.tensor(n) if self.chooser.random() < 0.4 else None
        residual = self.tensor(*x.shape[:-1], n) if self.chooser.random() < 0.3 else None
        activation = self.chooser.choice([None, None, "silu", "gelu_tanh", "gelu_erf"])
        out = None
        if self.chooser.random() < 0.5:
            out = self.rows(*x.shape[:-1], columns=n, gap=len(x.shape) == 2)
        given = dict(bias=bias, activation=activation, residual=residual, out=out)
        if self.chooser.random() < 0.5:
            result = kw.linear(x, weight, **given)
        else:
            result = kw.matmul(x, weight.t(), **given)
        if out is not None and result is not out:
            raise Mismatch("linear: the result is not out")
        product = x.float() @ weight.float().t()
        scale = x.float().abs() @ weight.float().abs().t()
        if bias is not None:
            product, scale = product + bias.float(), scale + bias.float().abs()
        product = self.activate(product, activation)
        if residual is not None:
            product, scale = product + residual.float(), scale + residual.float().abs()
        compare(f"linear {tuple(x.shape)} {tuple(weight.shape)} {activation}", result, product, scale)

    @staticmethod
    def activate(values, name):
        if name == "silu":
            return functional.silu(values)
        if name == "gelu_tanh":
            return functional.gelu(values, approximate="tanh")
        return functional.gelu(values) if name == "gelu_erf" else values

    def gated_linear(self):
        n, k = self.size(512), self.size(1024)
        x = self.rows(self.size(64, 1), columns=k, gap=True)
        weight = self.tensor(2 * n, k, scale=k ** -0.5)
        gate, up = (x.float() @ weight[i * n:(i + 1) * n].float().t() for i in (0, 1))
        scale = (x.float().abs() @ weight.float().abs().t()).amax(-1, keepdim=True)
        compare(f"gated_linear {tuple(x.shape)} {n}", kw.gated_linear(x, weight),
                functional.silu(gate) * up, scale * (1 + up.abs() + gate.abs()))

    def fp8(self, *shape):
        return self.tensor(*shape).to(torch.float8_e4m3fn)

    def scales(self, *shape):
        """A tensor whose transposed view has scales of blocks."""
        return torch.rand(*shape, generator=self.generator, device="cuda") + 0.5

    @staticmethod
    def in_blocks(scales, rows, columns, of_rows):
        """Scales of blocks for every element."""
        of_rows = scales.repeat_interleave(of_rows, -2)[..., :rows, :]
        return of_rows.repeat_interleave(BLOCK, -1)[..., :columns]

    def scaled_matmul(self):
        n, k, leading = self.size(512), self.size(1024, 16), self.leading(256)
        a = self.fp8(*leading, k + self.chooser.choice([0, 16, 64]))[..., :k]
        b = self.fp8(n, k)
        out_dtype = self.chooser.choice([torch.bfloat16, torch.float16, torch.float32])
        bias = self.tensor(n, dtype=out_dtype) if self.chooser.random() < 0.4 else None
        residual = self.tensor(*leading, n, dtype=out_dtype) if self.chooser.random() < 0.3 else None
        activation = self.chooser.choice([None, None, "silu", "gelu_tanh"])
        rows, weight, blocks = a.float().flatten(0, -2), b.float(), -(-k // BLOCK)
        if self.chooser.random() < 0.4:
            kind, scale_a, scale_b = "alpha", self.chooser.uniform(0.01, 0.1), 0.5
            rows = rows * (scale_a * scale_b)
        else:
            kind, scale_a = "block", self.scales(blocks, rows.shape[0]).t() * k ** -0.5
            scale_b = self.scales(-(-n // BLOCK), blocks).t()
            rows = rows * self.in_blocks(scale_a, *rows.shape, 1)
            weight = weight * self.in_blocks(scale_b.t(), n, k, BLOCK)
        out = None
        if self.chooser.random() < 0.5:
            out = self.tensor(*leading, n, dtype=out_dtype)
        result = kw.scaled_matmul(a, b.t(), scale_a, scale_b, bias=bias, residual=residual,
                                  activation=activation, out=out, out_dtype=out_dtype)
        if out is not None and result is not out:
            raise Mismatch("scaled_matmul: the result is not out")
        product, scale = rows @ weight.t(), rows.abs() @ weight.abs().t()
        if bias is not None:
            product, scale = product + bias.float(), scale + bias.float().abs()
        product, scale = (part.view(*leading, n) for part in (product, scale))
        product = self.activate(product, activation)
        if residual is not None:
            product, scale = product + residual.float(), scale + residual.float().abs()
        compare(f"scaled_matmul {kind} {tuple(a.shape)} n={n} {activation} {out_dtype}", result, product,
                scale, FP8_SLACK)

    def ends_of(self, groups, rows):
        """Returns the end of each group: uneven groups, many of them empty, and often rows behind the last."""
        cuts = [self.chooser.randint(0, rows) for _ in range(self.chooser.randint(0, groups))] + [rows]
        return sorted(self.chooser.choice(cuts) for _ in range(groups))

    def grouped_matmul(self):
        groups, rows = self.chooser.choice([1, 2, 7, 16, 64]), self.size(512, 1)
        of_fp8, gated = self.chooser.random() < 0.3, self.chooser.random() < 0.4
        n, k = self.size(512, BLOCK if of_fp8 and gated else 8), self.size(512, 16)
        activation = self.chooser.choice([None, "silu", "gelu_tanh"])
        columns, before = 2 * n if gated else n, self.chooser.choice([0, 1, 5])
        ends, named = self.ends_of(groups, rows), {}
        offs = torch.tensor([0, *ends], device="cuda", dtype=torch.int32)[1:]
        if of_fp8:
            a, b = self.fp8(before + rows, k)[before:], self.fp8(groups, columns, k)
            blocks = -(-k // BLOCK)
            scale_a = self.scales(blocks, rows) * k ** -0.5
            scale_b = self.scales(groups, -(-columns // BLOCK), blocks)
            named = dict(scale_a=scale_a.t(), scale_b=scale_b.transpose(1, 2))
            wide = a.float() * self.in_blocks(scale_a.t(), rows, k, 1)
            weights = b.float() * self.in_blocks(scale_b, columns, k, BLOCK)
        else:
            indexed = self.chooser.random() < 0.4
            tokens = self.size(512, 1) if indexed else rows
            a = self.tensor(before + tokens, k)[before:]
            b = self.tensor(groups, columns, k, scale=k ** -0.5)
            wide, weights = a.float(), b.float()
            if indexed:
                named["row_of"] = torch.randint(tokens, (before + rows,), device="cuda", dtype=torch.int32)[before:]
                wide = wide[named["row_of"]]
        out = self.tensor(rows, n, dtype=torch.bfloat16 if of_fp8 else self.dtype)
        expected, scale = out.float(), torch.zeros_like(out).float()
        result = kw.grouped_matmul(a, b.transpose(1, 2), offs, activation=activation, gated=gated,
                                   out=out, **named)
        if result is not out:
            raise Mismatch("grouped_matmul: the result is not out")
        for group, (begin, end) in enumerate(zip([0, *ends], ends)):
            product = wide[begin:end] @ weights[group].t()
            terms = wide[begin:end].abs() @ weights[group].abs().t()
            if gated:
                gate, other = product.chunk(2, -1)
                product = self.activate(gate, activation) * other
                terms = terms.amax(-1, keepdim=True) * (1 + gate.abs() + other.abs())
            else:
                product = self.activate(product, activation)
            expected[begin:end], scale[begin:end] = product, terms
        # Rows of no group are compared too: they are what they were.
        compare(f"grouped_matmul {a.dtype} {ends} n={n} k={k} {activation} gated={gated}", result,
                expected, scale, FP8_SLACK if of_fp8 else 2e-5)

    def rms_norm(self):
        self.norm(kw.rms_norm, lambda x, w, b, eps: functional.rms_norm(x, x.shape[-1:], w, eps), False)

    def layer_norm(self):
        self.norm(kw.layer_norm, lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
                  True)

    def norm(self, ours, theirs, may_have_bias):
        dtype = self.chooser.choice([self.dtype, torch.float32])
        columns = self.size(8192)
        x = self.tensor(*self.leading(256), columns, dtype=dtype)
        weight = self.tensor(columns, dtype=dtype) if self.chooser.random() < 0.8 else None
        bias = self.tensor(columns, dtype=dtype) if may_have_bias and weight is not None else None
        residual = self.tensor(*x.shape, dtype=dtype) if self.chooser.random() < 0.4 else None
        eps = self.chooser.choice([1e-6, 1e-5])
        named = {"bias": bias} if may_have_bias else {}
        result = ours(x, weight, eps=eps, residual=residual, **named)
        if residual is not None:
            result, total = result
            compare("sum", total, x.float() + residual.float(), x.float().abs())
            x = total  # what is normalised is the sum as it was rounded
        floats = [None if t is None else t.float() for t in (weight, bias)]
        expected = theirs(x.float(), *floats, eps)
        compare(f"norm {tuple(x.shape)} {dtype}", result, expected, expected.abs() + 1)

    def silu_and_mul(self):
        self.gated(kw.silu_and_mul, functional.silu)

    def gelu_and_mul(self):
        self.gated(lambda x: kw.gelu_and_mul(x, approximate="tanh"),
                   lambda x: functional.gelu(x, approximate="tanh"))

    def gated(self, ours, activation):
        dtype = self.chooser.choice([self.dtype, torch.float32])
        columns = self.size(4096)
        x = self.tensor(*self.leading(256), 2 * columns, dtype=dtype)
        gate, up = x.float().chunk(2, -1)
        expected = activation(gate) * up
        compare(f"gated {tuple(x.shape)} {dtype}", ours(x), expected, expected.abs() + 1)

    def softmax(self):
        dtype = self.chooser.choice([self.dtype, torch.float32])
        shape = (*self.leading(128), self.size(4096))
        x, scale = self.tensor(*shape, dtype=dtype), self.chooser.choice([1.0, 0.125])
        kind = self.chooser.choice(["none", "causal", "mask"])
        values = scale * x.float()
        if kind == "mask":
            mask = self.tensor(*shape, dtype=dtype)
            result, values = kw.softmax(x, scale=scale, mask=mask), values + mask.float()
        elif kind == "causal" and len(shape) > 1 and shape[-2] <= shape[-1]:
            result = kw.softmax(x, scale=scale, causal=True)
            queries, keys = shape[-2:]
            seen = torch.ones(queries, keys, device="cuda", dtype=torch.bool).tril(keys - queries)
            values = values.masked_fill(~seen, -math.inf)
        else:
            result = kw.softmax(x, scale=scale)
        compare(f"softmax {shape} {kind}", result, values.softmax(-1), torch.ones_like(values) * 0.1)

    def reduce(self):
        dtype = self.chooser.choice([self.dtype, torch.float32])
        x = self.tensor(*self.leading(128), self.size(8192), dtype=dtype)
        op, dim = self.chooser.choice(["sum", "max", "mean", "sum_squares"]), self.chooser.choice([-1, None])
        values = x.float() ** 2 if op == "sum_squares" else x.float()
        dims = tuple(range(x.dim())) if dim is None else (-1,)
        if op == "max":
            expected, scale = values.amax(dims), values.abs().amax(dims)
        elif op == "mean":
            expected, scale = values.mean(dims), values.abs().mean(dims)
        else:
            expected, scale = values.sum(dims), values.abs().sum(dims)
        result = kw.reduce(x, op, dim, out_dtype=torch.float32)
        compare(f"reduce {op} {dim} {tuple(x.shape)}", result, expected, scale)

    def rope(self):
        tokens, head_dim = self.size(128, 1), self.chooser.choice([64, 128])
        heads, kv_heads = self.chooser.choice([(8, 2), (4, 4)])
        q, k = self.tensor(tokens, heads, head_dim), self.tensor(tokens, kv_heads, head_dim)
        angles = torch.rand(tokens, head_dim // 2, generator=self.generator, device="cuda") * 6
        interleaved = self.chooser.random() < 0.5

        def rotated(values):
            values = values.float()
            if interleaved:
                first, second = values[..., 0::2], values[..., 1::2]
            else:
                first, second = values.chunk(2, -1)
            cos, sin = angles.cos()[:, None], angles.sin()[:, None]
            parts = (first * cos - second * sin, second * cos + first * sin)
            return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)

        results = kw.rope(q, k, angles.cos(), angles.sin(), interleaved=interleaved)
        for result, given in zip(results, (q, k)):
            compare(f"rope {tuple(given.shape)}", result, rotated(given), given.float().abs().amax() + 1)

    def elementwise(self):
        shape = (*self.leading(256), self.size(1024))
        x, y = self.tensor(*shape), self.tensor(*shape)
        result = kw.elementwise("a * x + silu(y)", x=x, y=y, a=0.5, out_dtype=torch.float32)
        compare("elementwise", result, 0.5 * x.float() + functional.silu(y.float()), x.float().abs() + 1)

    def attention(self):
        batch, head_dim = self.chooser.randint(1, 3), self.chooser.choice([64, 128])
        head_dim_v = self.chooser.choice([head_dim, head_dim, 64])
        heads, kv_heads = self.chooser.choice([(8, 2), (4, 4), (16, 2)])
        q_len, kv_len = self.chooser.choice([(1, self.size(512, 1)), (self.size(256, 1),) * 2, (16, 80)])
        transposed, gap = self.chooser.random() < 0.5, self.chooser.choice([0, 0, 8])

        def made(count, tokens, size):
            if transposed:
                wide = self.tensor(batch, tokens, count * size + gap)[..., :count * size]
                return wide.unflatten(-1, (count, size)).transpose(1, 2)
            return self.tensor(batch, count, tokens, size + gap)[..., :size]

        q, k = made(heads, q_len, head_dim), made(kv_heads, kv_len, head_dim)
        v = made(kv_heads, kv_len, head_dim_v)
        mask = self.chooser.choice(["none", "causal", "window"])
        window = self.chooser.randint(1, kv_len) if mask == "window" else None
        softcap = self.chooser.choice([None, None, 30.0])
        per_head = torch.rand(heads, generator=self.generator, device="cuda")
        sinks = per_head * 2 if self.chooser.random() < 0.3 else None
        slopes = per_head * 0.1 if self.chooser.random() < 0.3 else None
        lengths = None
        if self.chooser.random() < 0.3:
            own = [self.chooser.randint(q_len, kv_len) for _ in range(batch)]
            lengths = torch.tensor(own, device="cuda", dtype=torch.int32)
        return_lse = self.chooser.random() < 0.3
        result = kw.attention(q, k, v, causal=mask == "causal", window=window, softcap=softcap,
                              sinks=sinks, alibi_slopes=slopes, kv_lengths=lengths,
                              return_lse=return_lse)
        result, lse = result if return_lse else (result, None)
        groups = heads // kv_heads
        logits = q.float() @ k.float().repeat_interleave(groups, 1).transpose(-1, -2) * head_dim ** -0.5
        if softcap is not None:
            logits = softcap * (logits / softcap).tanh()
        keys = torch.arange(kv_len, device="cuda")
        ends = torch.full((batch,), kv_len, device="cuda") if lengths is None else lengths
        places = ends[:, None, None, None] - q_len + torch.arange(q_len, device="cuda")[:, None]
        if slopes is not None:
            logits = logits - slopes[:, None, None] * (places - keys).abs()
        seen = (keys < ends[:, None, None, None]).expand(batch, 1, q_len, kv_len)
        if mask != "none":
            seen = seen & (keys <= places)
        if mask == "window":
            seen = seen & (keys > places - window)
        logits = logits.masked_fill(~seen, -math.inf)
        if sinks is not None:
            sink = sinks[:, None, None].expand(batch, heads, q_len, 1)
            logits = torch.cat((logits, sink), -1)
        weights = logits.softmax(-1)[..., :kv_len]
        values = v.float().repeat_interleave(groups, 1)
        what = (f"attention {tuple(q.shape)} {tuple(v.shape)} {mask} {window} transposed={transposed} "
                f"gap={gap} softcap={softcap} sinks={sinks is not None} alibi={slopes is not None} "
                f"lengths={lengths is not None}")
        # The weights may be rounded before the second product, which the operation allows twice the
        # unit of rounding for.
        compare(what, result, weights @ values, weights @ values.abs(),
                slack=roundoff(self.dtype) + 2e-5)
        if lse is not None:
            expected = logits.logsumexp(-1)
            compare(f"{what}: lse", lse, expected, (1 + expected.abs()) * 40)


OPERATIONS = ["linear", "linear", "linear", "gated_linear", "scaled_matmul", "scaled_matmul",
              "grouped_matmul", "grouped_matmul", "rms_norm", "layer_norm", "silu_and_mul",
              "gelu_and_mul", "softmax", "reduce", "rope", "elementwise", "attention", "attention"]


@unittest.skipIf(NO_GPU, NO_GPU)
class RandomCallsGpuTest(unittest.TestCase):
    def test_results_are_those_of_pytorch(self):
        """On streams of several threads, each with its own."""
        local = threading.local()
        done, refused, wrong = {}, [], []

        def one(seed):
            if not hasattr(local, "stream"):
                local.stream = torch.cuda.Stream()
            case = Case(seed)
            name = case.chooser.choice(OPERATIONS)
            with torch.cuda.stream(local.stream):
                try:
                    case.run(name)
                    local.stream.synchronize()
                    done[seed] = name
                except kw.Error as error:
                    refused.append(f"{seed} {name}: {error}")
                except Mismatch as error:
                    wrong.append(f"{seed} {error}")

        with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(one, range(SEED * 100000, SEED * 100000 + CALLS)))
        counts = {name: list(done.values()).count(name) for name in OPERATIONS}
        print(f"{len(done)} right {counts}, {len(refused)} refused, {len(wrong)} wrong")
        for line in refused[:20] + wrong[:20]:
            print(" ", line)
        self.assertEqual(wrong, [])
        self.assertEqual(refused, [])

    def test_captures_are_right_and_use_the_pool_of_the_graph(self):
        x = torch.randn(16, 512, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(1024, 512, device="cuda", dtype=torch.bfloat16) / 20
        scale = torch.ones(1024, device="cuda", dtype=torch.bfloat16)

        def step():
            return kw.rms_norm(kw.linear(x, weight, activation="silu"), scale)

        expected = step().clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = step()
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(result, expected))
        x.copy_(torch.randn_like(x))
        graph.replay()
        self.assertTrue(torch.equal(result, step()))

    def test_a_stream_that_is_given_is_used(self):
        kernel = kw.default_service().kernel("vector_add n=4096 dtype=fp32")
        a, b, c = (torch.full((4096,), float(i), device="cuda") for i in range(3))
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        for stream in (side, side.cuda_stream):
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
            c.zero_()
            torch.cuda.current_stream().synchronize()
            kernel(a, b, c, stream=stream)
            self.assertFalse(side.query())  # it waits behind the work of the stream
            side.synchronize()
            self.assertTrue(torch.equal(c, a + b))

    def test_wrong_calls_are_refused_and_leave_the_gpu_as_it_is(self):
        x = torch.randn(8, 512, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
        kernel = kw.default_service().kernel("matmul m=8 n=256 k=512 dtype=bf16")
        out = torch.empty(8, 256, device="cuda", dtype=torch.bfloat16)
        together = torch.empty(8 * 512 + 64, device="cuda", dtype=torch.bfloat16)
        wrong = {
            "no GPU": lambda: kw.linear(x.cpu(), weight),
            "an output on the host": lambda: kernel(x, weight, out.cpu()),
            "another dtype": lambda: kernel(x.half(), weight, out),
            "another shape": lambda: kernel(x[:4], weight, out),
            "another rank": lambda: kernel(x, weight.flatten(), out),
            "dtypes that differ": lambda: kw.linear(x.half(), weight),
            "a dtype of nobody": lambda: kw.linear(x.to(torch.complex64), weight),
            "sizes that differ": lambda: kw.linear(x[:, :256], weight),
            "an output that overlaps": lambda: kernel(together[:4096].view(8, 512), weight,
                                                      together[1024:3072].view(8, 256)),
            "an address that is odd": lambda: kernel(together[1:4097].view(8, 512), weight, out),
            "no array": lambda: kw.linear(3, weight),
            "an array of another library": lambda: kernel(x.float().cpu().numpy(), weight, out),
        }
        for name, call in wrong.items():
            with self.subTest(name), self.assertRaises(kw.Error) as caught:
                call()
            self.assertTrue(caught.exception.reason, name)
        self.assert_right_still(kernel, x, weight, out)

    def assert_right_still(self, kernel, x, weight, out):
        kernel(x, weight, out)
        expected = x.float() @ weight.float().t()
        self.assertLess((out.float() - expected).abs().max().item(), 1.0)

    def test_wrong_calls_name_the_tensor_and_what_was_expected(self):
        def made(*shape, dtype=torch.bfloat16):
            return torch.zeros(shape, device="cuda", dtype=dtype)

        fp8, fp32, int32 = torch.float8_e4m3fn, torch.float32, torch.int32
        a, b, offs = made(64, 256), made(4, 128, 256).transpose(1, 2), made(4, dtype=int32)
        a8, b8 = made(64, 256, dtype=fp8), made(256, 256, dtype=fp8).t()
        of_a, of_b = made(2, 64, dtype=fp32).t(), made(2, 2, dtype=fp32).t()
        q, k = made(2, 8, 16, 64), made(2, 2, 32, 64)
        wrong = [
            ("", "offs is int64, and int32 expected", kw.grouped_matmul, (a, b, offs.long())),
            ("", "offs has the shape [3], and [4] expected", kw.grouped_matmul, (a, b, offs[1:])),
            ("", "b has the strides", kw.grouped_matmul, (a, b.repeat(1, 1, 2)[:, :, ::2], offs)),
            ("", "[4, 256, 128], and [4, 128, 128] expected", kw.grouped_matmul, (a[:, :128].contiguous(), b, offs)),
            ("", "this operation takes it without gaps", kw.grouped_matmul,
             (made(64, 264)[:, :256], b, offs)),
            ("", "one dtype expected", kw.grouped_matmul, (a.half(), b, offs)),
            ("", "scale_a, scale_b is missing", kw.grouped_matmul, (a.to(fp8), b.to(fp8), offs)),
            ("grouped_matmul groups=4 rows=64 n=124", "n % 8 == 0", kw.grouped_matmul,
             (a, b.transpose(1, 2)[:, :124].contiguous().transpose(1, 2), offs)),
            ("", "offs lies on the CPU", kw.grouped_matmul, (a, b, offs.cpu())),
            ("", "a is bf16, and fp8_e4m3 expected", kw.scaled_matmul, (a, a.t(), 1.0, 1.0)),
            ("", "two numbers or two arrays", kw.scaled_matmul, (a8, b8, of_a, 1.0)),
            ("", "scale_a is bf16, and fp32 expected", kw.scaled_matmul, (a8, b8, of_a.bfloat16(), of_b)),
            ("", "scale_b has the strides", kw.scaled_matmul, (a8, b8, of_a, of_b.contiguous())),
            ("", "b has the strides [256, 1], and [1, 256] expected", kw.scaled_matmul, (a8, b8.contiguous(), 1.0, 1.0)),
            ("", "q has 3 dimensions, and 4 expected", kw.attention, (q[0], k, k)),
            ("", "k has the shape", kw.attention, (q, k[..., :32].contiguous(), k)),
            ("", "one dtype expected", kw.attention, (q, k, k.half())),
            ("", "v has the strides [4096, 64, 128, 1]", kw.attention,
             (q, k, k.transpose(1, 2).contiguous().transpose(1, 2))),
            ("attention batch=2 heads=8 kv_heads=3", "heads % kv_heads == 0", kw.attention,
             (q, made(2, 3, 32, 64), made(2, 3, 32, 64))),
        ]
        for problem, reason, operation, arguments in wrong:
            with self.subTest(reason), self.assertRaises(kw.Error) as caught:
                operation(*arguments)
            self.assertTrue(caught.exception.problem.startswith(problem), caught.exception.problem)
            self.assertIn(reason, caught.exception.reason)
            if not problem:
                self.assertEqual(caught.exception.problem, "")
        kernel = kw.default_service().kernel("matmul m=8 n=256 k=512 dtype=bf16")
        self.assert_right_still(kernel, torch.randn(8, 512, device="cuda").bfloat16(),
                                torch.randn(256, 512, device="cuda").bfloat16(), made(8, 256))

    def test_columns_of_one_matrix_are_input_and_output(self):
        both = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
        expected = kw.linear(both[:, :512].contiguous(), weight)
        kw.linear(both[:, :512], weight, out=both[:, 512:])
        self.assertTrue(torch.equal(both[:, 512:], expected))


if __name__ == "__main__":
    unittest.main()
