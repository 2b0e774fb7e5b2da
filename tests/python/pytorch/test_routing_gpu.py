#!/usr/bin/env python3
"""The routing of mixtures of experts on a GPU: against PyTorch, alone and in batches, in CUDA graphs, and around grouped
products. Nothing may be left to PyTorch."""

import itertools
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

if not NO_GPU:
    import kernwright.torch as kw
    from kernwright.torch.ops import define, plain

CHOICES = [
    (8, dict(top=2, renormalise="sum")), (60, dict(top=4)), (128, dict(top=4, softmax_at="after")),
    (256, dict(top=8, score="sigmoid", biased=True, renormalise="sum", factor=2.5)),
    (160, dict(top=6, expert_groups=8, kept_groups=3, group_score="best", factor=16.0)),
    (256, dict(top=8, score="sigmoid", biased=True, renormalise="sum", expert_groups=8, kept_groups=4)),
    (896, dict(top=16, score="sqrt_softplus", biased=True, renormalise="sum")),
]


@unittest.skipIf(NO_GPU, NO_GPU)
class RoutingGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        define._left.clear()

    def tearDown(self):
        self.assertEqual(define._left, set())

    def test_choices(self):
        for (experts, named), dtype, tokens in itertools.product(
                CHOICES, (torch.bfloat16, torch.float32), (1, 5, 64, 700)):
            named = dict(named)
            bias = torch.randn(experts, device="cuda") / 8 if named.pop("biased", False) else None
            logits = torch.randn(tokens, experts, device="cuda").to(dtype)
            ids, weights = kw.choose_experts(logits, bias=bias, **named)
            right, expected = plain.choose_experts(logits, bias, **named)
            # Scores of PyTorch may differ in the last bit, and numbers that are that near change places.
            same = ids == right
            self.assertGreater(float(same.float().mean()), 0.995, named)
            torch.testing.assert_close(weights[same], expected[same], rtol=1e-4, atol=1e-6)
            self.assertTrue((ids.sort(-1).values.diff(dim=-1) > 0).all())
            for row in {0, tokens // 2, tokens - 1}:
                alone = kw.choose_experts(logits[row:row + 1].clone(), bias=bias, **named)
                self.assertTrue(torch.equal(alone[0][0], ids[row]) and torch.equal(alone[1][0], weights[row]), named)

    def test_padding_in_a_graph(self):
        logits, real = torch.randn(40, 128, device="cuda"), torch.tensor([40], dtype=torch.int32, device="cuda")
        kw.order_experts(kw.choose_experts(logits, top=4, real=real)[0], 128)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ids, weights = kw.choose_experts(logits, top=4, real=real)
            ends, row_of, place = kw.order_experts(ids, 128)
        for count in (40, 17, 0):
            real.fill_(count)
            logits.normal_()
            logits[count:] = torch.nan
            graph.replay()
            self.assertTrue((ids[count:] == -1).all() and (weights[count:] == 0).all() and (place[count:] == -1).all())
            self.assertEqual(int(ends[-1]), 4 * count)
            right, _ = plain.choose_experts(logits, None, real, top=4)
            self.assertTrue(torch.equal(ids, right))

    def test_orders_and_sums(self):
        for tokens, top, experts, first in itertools.product((1, 3, 64, 2000), (1, 4, 9), (8, 60, 257), (0, 5)):
            ids = torch.rand(tokens, experts + 9, device="cuda").topk(top)[1].int() - 1
            for mine, right in zip(kw.order_experts(ids, experts, first=first),
                                   plain.order_experts(ids, experts=experts, first=first)):
                self.assertTrue(torch.equal(mine, right), (tokens, top, experts, first))
            place = kw.order_experts(ids, experts, first=first)[2]
            for columns, dtype in itertools.product((77, 512), (torch.bfloat16, torch.float32)):
                y = torch.randn(tokens * top, columns, device="cuda").to(dtype)
                weights = torch.rand(tokens, top, device="cuda")
                shared, residual = (torch.randn(tokens, columns, device="cuda").to(dtype) for _ in range(2))
                for given, others in itertools.product((None, weights), ({}, dict(shared=shared, residual=residual))):
                    found = kw.combine_experts(y, place, given, **others)
                    wanted = plain.combine_experts(y.double(), place, given, *(each.double() for each in others.values()))
                    torch.testing.assert_close(found.double(), wanted, rtol=0.01 if dtype is torch.bfloat16 else 1e-5,
                                               atol=1e-5)

    def test_a_whole_mixture(self):
        experts, hidden, inner, top = 24, 256, 128, 4
        gate_up = (torch.randn(experts, 2 * inner, hidden, device="cuda") / 16).bfloat16()
        down = (torch.randn(experts, hidden, inner, device="cuda") / 11).bfloat16()
        router = (torch.randn(experts, hidden, device="cuda") / 4).bfloat16()
        for tokens in (1, 7, 300):
            x, residual = torch.randn(2, tokens, hidden, device="cuda").bfloat16()
            logits = x @ router.t()
            ids, weights = kw.choose_experts(logits, top=top, renormalise="sum")
            ends, row_of, place = kw.order_experts(ids, experts)
            rows = kw.grouped_matmul(x, gate_up.transpose(1, 2), ends, row_of=row_of, activation="silu", gated=True)
            result = kw.combine_experts(kw.grouped_matmul(rows, down.transpose(1, 2), ends), place, weights,
                                        residual=residual)
            wanted = residual.double()
            for token, j in itertools.product(range(tokens), range(top)):
                e = int(ids[token, j])
                gate, up = (gate_up[e].double() @ x[token].double()).chunk(2)
                opened = torch.nn.functional.silu(gate) * up
                wanted[token] += weights[token, j].double() * (down[e].double() @ opened)
            self.assertLess(float((result.double() - wanted).norm() / wanted.norm()), 0.01)


if __name__ == "__main__":
    unittest.main()
