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


class Mismatch(Exception):
    pass


def roundoff(dtype):
    return torch.finfo(dtype).eps


def compare(what, result, expected, scale):
    """`expected` is exact to fp32; `scale` bounds the sum of the absolute terms of each element."""
    allowed = roundoff(result.dtype) * expected.abs() + 2e-5 * scale + 1e-6
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
        heads, kv_heads = self.chooser.choice([(8, 2), (4, 4), (16, 2)])
        q_len, kv_len = self.chooser.choice([(1, self.size(512, 1)), (self.size(256, 1),) * 2, (16, 80)])
        causal = self.chooser.random() < 0.5

        def made(count, tokens):
            if transposed:
                return self.tensor(batch, tokens, count, head_dim).transpose(1, 2)
            return self.tensor(batch, count, tokens, head_dim)

        transposed = self.chooser.random() < 0.5
        q, k, v = made(heads, q_len), made(kv_heads, kv_len), made(kv_heads, kv_len)
        result = kw.attention(q, k, v, causal=causal)
        seen = torch.ones(q_len, kv_len, device="cuda", dtype=torch.bool)
        seen = seen.tril(kv_len - q_len) if causal else seen
        groups = heads // kv_heads
        logits = q.float() @ k.float().repeat_interleave(groups, 1).transpose(-1, -2) * head_dim ** -0.5
        weights = logits.masked_fill(~seen, -math.inf).softmax(-1)
        values = v.float().repeat_interleave(groups, 1)
        # The weights are rounded before the second product.
        scale = weights @ values.abs() * (1 + 200 * roundoff(self.dtype))
        compare(f"attention {tuple(q.shape)} {tuple(k.shape)} causal={causal} transposed={transposed}",
                result, weights @ values, scale * 40)


OPERATIONS = ["linear", "linear", "linear", "gated_linear", "rms_norm", "layer_norm", "silu_and_mul",
              "gelu_and_mul", "softmax", "reduce", "rope", "elementwise", "attention"]


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
            self.assertFalse(side.query())  # it waits behind what the stream has to do
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
        kernel(x, weight, out)
        expected = x.float() @ weight.float().t()
        self.assertLess((out.float() - expected).abs().max().item(), 1.0)

    def test_columns_of_one_matrix_are_input_and_output(self):
        both = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
        expected = kw.linear(both[:, :512].contiguous(), weight)
        kw.linear(both[:, :512], weight, out=both[:, 512:])
        self.assertTrue(torch.equal(both[:, 512:], expected))


if __name__ == "__main__":
    unittest.main()
