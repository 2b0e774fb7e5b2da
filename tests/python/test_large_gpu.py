#!/usr/bin/env python3
"""Tensors of more than 2^32 elements on a GPU with 80 GB: their ends, against PyTorch."""

import gc
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

ROWS, COLUMNS = 131072, 32776  # 2^32 + 2^20 elements, 8.6 GB in bf16


def bf16(*shape):
    """Numbers that differ from place to place, made in place."""
    x = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    for part in x.view(-1).split(1 << 28):
        part.normal_()
    return x


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16, device="cuda")


def ends(*tensors):
    """The first and the last rows of each, and those around the element 2^31 and 2^32."""
    rows = {0, 1, tensors[0].shape[0] - 2, tensors[0].shape[0] - 1}
    for element in (1 << 31, 1 << 32):
        row = element // (tensors[0].numel() // tensors[0].shape[0])
        rows |= {min(max(row + i, 0), tensors[0].shape[0] - 1) for i in (-1, 0, 1)}
    chosen = torch.tensor(sorted(rows), device="cuda")
    return [x[chosen].float() for x in tensors]


@unittest.skipIf(NO_GPU, NO_GPU)
class LargeGpuTest(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.empty_cache()
        if torch.cuda.mem_get_info()[0] < 40 << 30:
            self.skipTest("needs 40 GB of free memory")
        torch.manual_seed(1)

    def launch(self, problem, *arguments):
        kernel = kw.default_service().kernel(problem)
        kernel(*arguments)
        torch.cuda.synchronize()

    def close(self, result, expected, tolerance=2e-2):
        self.assertTrue(torch.allclose(result, expected, rtol=tolerance, atol=tolerance),
                        (result - expected).abs().max())

    def test_pointwise(self):
        n = ROWS * COLUMNS
        x, y = bf16(ROWS, COLUMNS), bf16(ROWS, COLUMNS)
        out = torch.zeros_like(x)
        a, b, c = x.view(-1), y.view(-1), out.view(-1)
        self.launch(f"vector_add n={n} dtype=bf16", a, b, c)
        u, v, w = ends(x, y, out)
        self.close(w, u + v)
        out.zero_()
        self.launch(f"elementwise n={n} dtype=bf16 formula=x*y", a, b, c)
        u, v, w = ends(x, y, out)
        self.close(w, u * v)

    def test_activations(self):
        x, out, bias = bf16(ROWS, COLUMNS), zeros(ROWS, COLUMNS), bf16(COLUMNS)
        self.launch(f"bias_activation rows={ROWS} columns={COLUMNS} dtype=bf16 activation=none",
                    x, bias, out)
        u, w = ends(x, out)
        self.close(w, u + bias.float())
        up = bf16(ROWS, COLUMNS)
        self.launch(f"gated_activation rows={ROWS} columns={COLUMNS} dtype=bf16", x, up, out)
        u, v, w = ends(x, up, out)
        self.close(w, torch.nn.functional.silu(u) * v)

    def test_rows(self):
        x, out, weight = bf16(ROWS, COLUMNS), zeros(ROWS, COLUMNS), bf16(COLUMNS)
        self.launch(f"rmsnorm rows={ROWS} columns={COLUMNS} dtype=bf16", x, weight, out)
        u, w = ends(x, out)
        self.close(w, u * (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.float())
        self.launch(f"softmax rows={ROWS} columns={COLUMNS} dtype=bf16", x, out)
        u, w = ends(x, out)
        self.close(w, torch.softmax(u, -1), 1e-3)
        index = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
        self.launch(f"argmax rows={ROWS} columns={COLUMNS} dtype=bf16", x, index)
        self.assertTrue(torch.equal(x[-1].float()[index[-1]], x[-1].float().max()))
        self.assertTrue(torch.equal(x[0].float()[index[0]], x[0].float().max()))
        sums = zeros(ROWS)
        self.launch(f"reduce rows={ROWS} columns={COLUMNS} dtype=bf16 kind=max", x, sums)
        u, w = ends(x, sums[:, None])
        self.close(w[:, 0], u.amax(-1))

    def test_one_long_row(self):
        columns = (1 << 31) + 4096
        x, y = zeros(1, columns), zeros(1)
        for place in (0, (1 << 31) - 1, 1 << 31, columns - 1):
            x.zero_()
            x[0, place] = 7
            self.launch(f"reduce rows=1 columns={columns} dtype=bf16 kind=max", x, y)
            self.assertEqual(float(y), 7, place)
        with self.assertRaisesRegex(kw.Error, "2147483136"):
            kw.default_service().kernel(
                f"bias_activation rows=1 columns={columns} dtype=bf16 activation=none")

    def test_tables_and_caches(self):
        hidden, vocabulary = 4096, (1 << 20) + 64  # 2^32 elements and more
        table = bf16(vocabulary, hidden)
        tokens = torch.tensor([0, vocabulary - 1, vocabulary // 2, vocabulary - 64],
                              dtype=torch.int32, device="cuda")
        x = zeros(4, hidden)
        self.launch(f"embedding tokens=4 hidden={hidden} vocabulary={vocabulary} dtype=bf16",
                    tokens, table, x)
        self.assertTrue(torch.equal(x, table[tokens.long()]))
        del table
        heads, keys = 32, (1 << 20) + 16  # a cache of 2^32 elements and more
        k, v = (zeros(1, keys, heads, 128) for _ in "kv")
        new_k, new_v = bf16(1, 16, heads, 128), bf16(1, 16, heads, 128)
        self.launch(f"kv_append batch=1 kv_heads={heads} q_len=16 kv_len={keys} head_dim=128"
                    " dtype=bf16", new_k, new_v, k, v)
        self.assertTrue(torch.equal(k[:, -16:], new_k) and torch.equal(v[:, -16:], new_v))
        self.assertFalse(k[:, :16].any())

    def test_rope(self):
        tokens = 1048584
        q, k = bf16(tokens, 32, 128), bf16(tokens, 8, 128)
        angle = torch.rand(tokens, 64, device="cuda")
        q_out, k_out = torch.zeros_like(q), torch.zeros_like(k)
        self.launch(f"rope tokens={tokens} heads=32 kv_heads=8 head_dim=128 dtype=bf16",
                    q, k, angle.cos(), angle.sin(), q_out, k_out)
        u, w, a = ends(q, q_out, angle)
        first, second = u.chunk(2, -1)
        c, s = a.cos()[:, None], a.sin()[:, None]
        self.close(w, torch.cat((first * c - second * s, second * c + first * s), -1))


if __name__ == "__main__":
    unittest.main()
