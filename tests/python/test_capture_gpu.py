#!/usr/bin/env python3
"""Requests inside torch.cuda.graph: shapes that are in memory and shapes that are not."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


@unittest.skipIf(NO_GPU, NO_GPU)
class CaptureGpuTest(unittest.TestCase):
    def test_an_unseen_shape_is_refused_and_the_capture_goes_on(self):
        x, weight, unseen = random(16, 512), random(1024, 512) / 20, random(1032, 512)
        expected = kw.linear(x, weight)
        graph = torch.cuda.CUDAGraph()
        with kw.Service(on_miss="tune_now", tune_seconds=1) as service:
            kw.linear(x, weight)
            tuned = sum(count.count for count in service.lookup_counts())
            with torch.cuda.graph(graph):
                for _ in range(2):  # the second time it is as unseen as the first
                    with self.assertRaises(kw.Error) as caught:
                        kw.linear(x, unseen)
                result = kw.linear(x, weight)
            self.assertIn("m=16 n=1032 k=512", caught.exception.problem)
            for word in ("capture", "before"):  # what is wrong, and the remedy
                self.assertIn(word, caught.exception.reason)
            self.assertGreaterEqual(sum(count.count for count in service.lookup_counts()), tuned)
            result.zero_()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.allclose(result, expected, rtol=2e-2, atol=2e-2))
            kw.linear(x, unseen)  # outside of the capture, which is the remedy
            again = torch.cuda.CUDAGraph()
            with torch.cuda.graph(again):
                result = kw.linear(x, unseen)
            again.replay()
            torch.cuda.synchronize()
            wide = x.float() @ unseen.float().t()
            self.assertLess((result.float() - wide).abs().max().item(), 0.01 * wide.abs().max().item())

    def test_the_same_in_an_operator_of_pytorch(self):
        import kernwright.torch
        x, scale = random(16, 768), random(768)
        graph = torch.cuda.CUDAGraph()
        with kw.Service(), torch.no_grad(), torch.cuda.graph(graph):
            with self.assertRaises(kw.Error):
                torch.ops.kernwright.rms_norm(x, scale)
            doubled = x + x
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(doubled, x + x))


if __name__ == "__main__":
    unittest.main()
