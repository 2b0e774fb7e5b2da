#!/usr/bin/env python3
"""First calls of further sizes of loaded families, against PyTorch in fp32, also in a capture."""

import random
import tempfile
import unittest
from unittest import mock

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw
from kernwright import _call


def new(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


@unittest.skipIf(NO_GPU, NO_GPU)
class SizesGpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)
        cls.service = kw.Service(cache=cls.cache.name)
        cls.service.prewarm(["matmul m=300 n=256 k=512 dtype=bf16",
                             "rmsnorm rows=300 columns=512 dtype=bf16"])
        cls.weight, cls.scale = new(256, 512) / 20, new(512)

    def calls(self, rows):
        """Yields a call, and its result in fp32."""
        x, scale = new(rows, 512), self.scale
        yield lambda: kw.linear(x, self.weight), x.float() @ self.weight.float().t()
        wide = x.float()
        yield (lambda: kw.rms_norm(x, scale),
               wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * scale.float())

    def assert_near(self, result, expected):
        self.assertEqual(result.shape, expected.shape)
        error = (result.float() - expected).abs().max().item()
        self.assertLess(error, 0.01 * expected.abs().max().item())

    def test_they_compute_what_pytorch_computes_and_bind_nothing(self):
        chooser = random.Random(1)
        with self.service:
            for call, expected in self.calls(300):
                self.assert_near(call(), expected)
            with mock.patch.object(_call.Form, "plan", side_effect=AssertionError("bound")):
                for _ in range(100):
                    for call, expected in self.calls(chooser.randint(130, 1000)):
                        self.assert_near(call(), expected)

    def test_few_rows_and_queries(self):
        """Templates compile their number in, so one choice has several kernels."""
        weight = torch.randn(2048, 6144, device="cuda", dtype=torch.float16) / 80
        with self.service:
            for rows in (*range(1, 17), *range(1, 17)):  # then from the kernels that are loaded
                x = torch.randn(rows, 6144, device="cuda", dtype=torch.float16)
                self.assert_near(kw.linear(x, weight), x.float() @ weight.float().t())
            k, v = (torch.randn(1, 8, 3000, 128, device="cuda", dtype=torch.bfloat16)
                    for _ in range(2))
            for queries in (*range(1, 18), *range(1, 18)):
                q = torch.randn(1, 32, queries, 128, device="cuda", dtype=torch.bfloat16)
                expected = torch.nn.functional.scaled_dot_product_attention(
                    q.float(), k.float(), v.float(), enable_gqa=True)
                self.assert_near(kw.attention(q, k, v), expected)

    def test_they_are_captured(self):
        with self.service:
            for call, _ in self.calls(300):
                call()
            for call, expected in self.calls(777):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    result = call()
                graph.replay()
                torch.cuda.synchronize()
                self.assert_near(result, expected)


if __name__ == "__main__":
    unittest.main()
