#!/usr/bin/env python3
"""The operators of engines' quantized layers on a GPU, against PyTorch in fp64. Nothing may be left to PyTorch."""

import itertools
import os
import sys
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

if not NO_GPU:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
    from checkpoints import Layer, mxfp4
    from kernwright.torch import _operators
    from kernwright.torch._quantized import QuantizedRows, QuantizedWeight
    from kernwright.torch._quantized_experts import QuantizedExperts
    from kernwright.torch._quantized_mixtures import QuantizedMixture
    from kernwright.torch.ops import define

ROWS = (1, 3, 16, 100, 700)


@unittest.skipIf(NO_GPU, NO_GPU)
class OperatorsGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        _operators._said.clear()
        define._left.clear()

    def tearDown(self):
        self.assertEqual((_operators._said, define._left), (set(), set()))

    def expect_near(self, found, wanted, limit=0.01):
        self.assertEqual((found.dtype, found.shape), (torch.bfloat16, wanted.shape))
        self.assertLess(float((found.double() - wanted).norm() / wanted.norm()), limit)

    def test_weights_of_4_and_8_bits(self):
        for bits, symmetric, ordered in itertools.product((4, 8), (False, True), (False, True)):
            layer = Layer(200, 520, 64, bits, symmetric=symmetric, ordered=ordered, scale=torch.bfloat16)
            tensors = {name: tensor.cuda() for name, tensor in layer.compressed_tensors().items()}
            weight = QuantizedWeight.from_compressed_tensors(**tensors, bits=bits, group=64,
                                                             weight_g_idx=layer.groups.int().cuda())
            bias = torch.randn(200, device="cuda").bfloat16()
            for rows in ROWS:
                x = torch.randn(rows, 520, device="cuda").bfloat16()
                self.expect_near(_operators.quantized_linear(x, weight, bias),
                                 x.double() @ layer.weight().t().cuda() + bias.double())

    def mixtures(self):
        """Experts of gpt-oss, and with integers of 4 bits with zero points."""
        parts = []
        for seed, (rows, k, gate) in enumerate(((2 * 96, 160, "interleaved"), (160, 96, "none"))):
            blocks, scales, _ = (part.cuda() for part in mxfp4(6, rows, k, seed))
            parts.append(QuantizedExperts.from_mxfp4(blocks, scales, torch.randn(6, rows).bfloat16().cuda(), gate=gate))
        yield QuantizedMixture(*parts, "swiglu_oai")
        layers = [[Layer(n, k, 32, scale=torch.bfloat16, seed=3 * expert + part)
                   for part, (n, k) in enumerate(((96, 160), (96, 160), (160, 96)))] for expert in range(6)]
        weights = [[QuantizedWeight.from_compressed_tensors(
            **{name: tensor.cuda() for name, tensor in layer.compressed_tensors().items()}, group=32) for layer in own]
            for own in layers]
        yield QuantizedMixture(QuantizedExperts.join([own[:2] for own in weights], gate="stacked"),
                               QuantizedExperts.join([own[2:] for own in weights]))

    def test_experts(self):
        with torch.no_grad():
            for mixture, tokens in itertools.product(self.mixtures(), (1, 5, 64, 500)):
                def routed():
                    shares, index = torch.rand(tokens, 6, device="cuda").topk(3)
                    index[torch.rand(index.shape, device="cuda") < 0.2] = -1  # experts of other ranks
                    return torch.randn(tokens, 160, device="cuda").bfloat16(), index.int(), shares

                def expected(x, index, shares):
                    return mixture.plain(x, index.clamp(min=0), shares.masked_fill(index < 0, 0)).double()

                given = routed()
                self.expect_near(_operators.quantized_mixture(given[0], mixture, *given[1:]), expected(*given), 0.02)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    found = _operators.quantized_mixture(given[0], mixture, *given[1:])
                for mine, other in zip(given, routed()):
                    mine.copy_(other)
                graph.replay()
                self.expect_near(found, expected(*given), 0.02)

    def test_fp8_with_one_scale(self):
        weight, bias = torch.randn(208, 528, device="cuda").to(torch.float8_e4m3fn), torch.randn(208, device="cuda").bfloat16()
        for rows, own in itertools.product(ROWS, (None, bias)):
            x = torch.randn(rows, 528, device="cuda").to(torch.float8_e4m3fn)
            found = _operators.OPERATORS.scaled_linear(x, weight, 0.25, own, torch.bfloat16)
            self.expect_near(found, 0.25 * (x.double() @ weight.double().t()) + (0 if own is None else own.double()))

    def test_8_bits_by_rows(self):
        for rows, dtype in itertools.product(ROWS, (torch.int8, torch.float8_e4m3fn)):
            weight, bias = QuantizedRows.from_float(torch.randn(208, 528), dtype).cuda(), torch.randn(208).bfloat16().cuda()
            x, norm = torch.randn(rows, 528).bfloat16().cuda(), torch.randn(528).bfloat16().cuda()
            matrix, named = weight.dequantize(torch.float64), {"quantize": "row", "dtype": dtype}
            found = _operators.rows_linear(x, weight.codes, weight.scales, bias, torch.bfloat16)
            self.expect_near(found, x.double() @ matrix.t() + bias.double(), 0.05)
            normal = torch.nn.functional.rms_norm((x + x).double(), (528,), norm.double(), 1e-6)
            opened = torch.nn.functional.silu(x[:, :264].double()) * x[:, 264:].double()
            for (codes, scale, *_), wanted in (
                    (_operators.OPERATORS.quantized_norm(x, x, norm, None, None, 1e-6, norm="rms_norm", **named), normal),
                    (_operators.OPERATORS.quantized_gate(x, None, activation="silu", **named), opened)):
                self.expect_near((codes.double() * scale.double().t()).bfloat16(), wanted, 0.05)

    def test_fp8_with_scales_of_blocks(self):
        weight = torch.randn(320, 512, device="cuda").to(torch.float8_e4m3fn)
        scales = torch.rand(3, 4, device="cuda") + 0.5
        wide = weight.double() * scales.double().repeat_interleave(128, 0)[:320].repeat_interleave(128, 1)
        for rows in ROWS:
            x = torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn)
            of_x = (torch.rand(4, rows, device="cuda") + 0.5).t()
            found = _operators.OPERATORS.block_scaled_linear(x, weight, of_x, scales, torch.bfloat16)
            self.expect_near(found, (x.double() * of_x.double().repeat_interleave(128, 1)) @ wide.t())
            x = torch.randn(rows, 512, device="cuda").bfloat16()
            codes, of_x = _operators.OPERATORS.quantize_rows(x, dtype=torch.float8_e4m3fn, quantize="block")
            found = _operators.OPERATORS.block_scaled_linear(codes, weight, of_x.t(), scales, torch.bfloat16)
            self.expect_near(found, x.double() @ wide.t(), 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
