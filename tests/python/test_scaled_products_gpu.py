#!/usr/bin/env python3
"""Grouped and scaled products on a GPU, against PyTorch in fp32."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

ENDS = [0, 30, 30, 100]  # empty groups, and rows at the end that no group has
ROWS, N, K = 112, 256, 384


def near(result, expected, scale=1.0):
    return ((result.float() - expected).abs().max() / expected.abs().max()).item() < 0.02 * scale


def in_blocks(scales, rows, columns, of_rows, of_columns):
    """Scales of blocks for every element."""
    return scales.repeat_interleave(of_rows, 0)[:rows].repeat_interleave(of_columns, 1)[:, :columns]


@unittest.skipIf(NO_GPU, NO_GPU)
class ScaledProductsGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.offs = torch.tensor(ENDS, device="cuda", dtype=torch.int32)

    def groups(self):
        return enumerate(zip([0, *ENDS], ENDS))

    def test_grouped_matmul(self):
        a = torch.randn(ROWS, K, device="cuda").bfloat16()
        b = torch.randn(len(ENDS), N, K, device="cuda").bfloat16()
        given = kw.grouped_matmul(a, b.transpose(1, 2), self.offs)
        gated = kw.grouped_matmul(a, b.transpose(1, 2), self.offs, activation="silu", gated=True)
        self.assertEqual((given.shape, gated.shape), ((ROWS, N), (ROWS, N // 2)))
        for group, (begin, end) in self.groups():
            if begin == end:
                continue
            product = a[begin:end].float() @ b[group].float().t()
            self.assertTrue(near(given[begin:end], product), group)
            gate, other = product.chunk(2, -1)
            self.assertTrue(near(gated[begin:end], torch.nn.functional.silu(gate) * other, 2), group)
        out = torch.full((ROWS, N), 7.0, device="cuda", dtype=torch.bfloat16)
        self.assertIs(kw.grouped_matmul(a, b.transpose(1, 2), self.offs, out=out), out)
        self.assertTrue((out[ENDS[-1]:] == 7).all())
        self.assertTrue(torch.equal(out[:ENDS[-1]], given[:ENDS[-1]]))

    def test_rows_of_groups_that_an_index_names(self):
        b = torch.randn(len(ENDS), N, K, device="cuda").bfloat16()
        for tokens in (1, 7, ROWS, 4 * ROWS):
            a = torch.randn(tokens, K, device="cuda").bfloat16()
            row_of = torch.randint(tokens, (ROWS,), device="cuda", dtype=torch.int32)
            for named in ({}, dict(activation="silu", gated=True)):
                given = kw.grouped_matmul(a, b.transpose(1, 2), self.offs, row_of=row_of, **named)
                sorted_rows = kw.grouped_matmul(a[row_of].contiguous(), b.transpose(1, 2), self.offs, **named)
                self.assertTrue(near(given[:ENDS[-1]], sorted_rows[:ENDS[-1]].float()), (tokens, named))

    def test_biases_and_gates_of_both_orders(self):
        row_of = torch.randint(ROWS, (ROWS,), device="cuda", dtype=torch.int32)
        for k in (K, K - 8):  # whole stages of rows of k, and a part of one
            a = torch.randn(ROWS, k, device="cuda").bfloat16()
            weights = (torch.randn(len(ENDS), k, N, device="cuda") / k**0.5).bfloat16()
            bias = torch.randn(len(ENDS), N, device="cuda").bfloat16()
            for b in (weights, weights.transpose(1, 2).contiguous().transpose(1, 2)):
                plain = kw.grouped_matmul(a, b, self.offs, bias=bias)
                opened = [kw.grouped_matmul(a, b, self.offs, bias=bias, row_of=row_of, activation="swiglu_oai",
                                            gated=True, interleaved=interleaved, limit=1.5)
                          for interleaved in (False, True)]
                for group, (begin, end) in self.groups():
                    if begin == end:
                        continue
                    weight, shift = weights[group].float(), bias[group].float()
                    self.assertTrue(near(plain[begin:end], a[begin:end].float() @ weight + shift), group)
                    sums = a[row_of[begin:end]].float() @ weight + shift
                    for found, (gate, up) in zip(opened, (sums.chunk(2, -1), (sums[:, 0::2], sums[:, 1::2]))):
                        gate = gate.clamp(max=1.5)
                        expected = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-1.5, 1.5) + 1)
                        self.assertTrue(near(found[begin:end], expected, 2), (group, k))

    def test_grouped_matmul_of_fp8_with_scales_of_blocks(self):
        a = torch.randn(ROWS, K, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(len(ENDS), N, K, device="cuda").to(torch.float8_e4m3fn)
        of_a = torch.rand(K // 128, ROWS, device="cuda") + 0.5
        of_b = torch.rand(len(ENDS), N // 128, K // 128, device="cuda") + 0.5
        given = kw.grouped_matmul(a, b.transpose(1, 2), self.offs, scale_a=of_a.t(),
                                  scale_b=of_b.transpose(1, 2))
        self.assertIs(given.dtype, torch.bfloat16)
        wide = a.float() * in_blocks(of_a.t(), ROWS, K, 1, 128)
        for group, (begin, end) in self.groups():
            if begin == end:
                continue
            weight = b[group].float() * in_blocks(of_b[group], N, K, 128, 128)
            self.assertTrue(near(given[begin:end], wide[begin:end] @ weight.t()), group)

    def test_scaled_matmul(self):
        a = torch.randn(ROWS, K, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(N, K, device="cuda").to(torch.float8_e4m3fn)
        whole = kw.scaled_matmul(a, b.t(), 0.5, 3.0)
        self.assertTrue(near(whole, 1.5 * a.float() @ b.float().t()))
        of_a = torch.rand(K // 128, ROWS, device="cuda") + 0.5
        of_b = torch.rand(N // 128, K // 128, device="cuda") + 0.5
        bias = torch.randn(N, device="cuda").bfloat16()
        given = kw.scaled_matmul(a, b.t(), of_a.t(), of_b.t(), bias=bias)
        wide = a.float() * in_blocks(of_a.t(), ROWS, K, 1, 128)
        weight = b.float() * in_blocks(of_b, N, K, 128, 128)
        self.assertTrue(near(given, wide @ weight.t() + bias.float()))


if __name__ == "__main__":
    unittest.main()
