#!/usr/bin/env python3
"""Baked launches and chains on a GPU, against PyTorch."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

ROWS, HIDDEN, WIDE = 16, 512, 1024


def random(*shape, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale).bfloat16()


@unittest.skipIf(NO_GPU, NO_GPU)
class BakedGpuTest(unittest.TestCase):
    def setUp(self):
        self.kernel = kw.default_service().kernel(f"matmul m={ROWS} n={WIDE} k={HIDDEN} dtype=bf16")
        self.x, self.weight = random(ROWS, HIDDEN), random(WIDE, HIDDEN, scale=HIDDEN ** -0.5)
        self.out = torch.zeros(ROWS, WIDE, device="cuda", dtype=torch.bfloat16)

    def called(self, x):
        out = torch.empty_like(self.out)
        self.kernel(x, self.weight, out)
        return out

    def test_a_launch_gives_what_a_call_gives(self):
        baked = self.kernel.bake(self.x, self.weight, self.out)
        self.assertFalse(self.out.any())
        baked()
        self.assertTrue(torch.equal(self.out, self.called(self.x)))

    def test_other_arguments_are_those_of_later_launches(self):
        baked = self.kernel.bake(self.x, self.weight, self.out)
        inputs, outs = [random(ROWS, HIDDEN) for _ in range(6)], [torch.empty_like(self.out) for _ in range(6)]
        for _ in range(2):
            for x, out in zip(inputs, outs):
                baked.rebind(x, self.weight, out)
                baked.launch()
        for x, out in zip(inputs, outs):
            self.assertTrue(torch.equal(out, self.called(x)))
        with self.assertRaises(kw.Error):
            baked.rebind(self.x.float(), self.weight, self.out)
        last = outs[-1].clone()
        outs[-1].zero_()
        baked()  # a refused rebind leaves the arguments of before
        self.assertTrue(torch.equal(outs[-1], last))

    def test_a_capture_takes_it(self):
        baked = self.kernel.bake(self.x, self.weight, self.out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            baked.add_to_capture()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(self.out, self.called(self.x)))
        del graph

    def test_outside_of_a_capture_there_is_nothing_to_add_to(self):
        baked = self.kernel.bake(self.x, self.weight, self.out)
        with self.assertRaises(kw.Error):
            baked.add_to_capture(stream=torch.cuda.Stream())

    def test_it_keeps_its_arrays_and_its_kernel(self):
        out = torch.empty_like(self.out)
        baked = kw.Service().kernel(str(self.kernel.problem)).bake(self.x.clone(), self.weight.clone(), out)
        again = [random(ROWS, HIDDEN) for _ in range(8)]  # takes the memory of what was let go
        baked()
        self.assertTrue(torch.equal(out, self.called(self.x)))
        self.assertEqual(len(again), 8)


@unittest.skipIf(NO_GPU, NO_GPU)
class ChainGpuTest(unittest.TestCase):
    def setUp(self):
        service = kw.default_service()
        self.norm = service.kernel(f"rmsnorm rows={ROWS} columns={HIDDEN} dtype=bf16 weight=scale")
        self.products = service.kernels(f"matmul m={ROWS} n={WIDE} k={HIDDEN} dtype=bf16")
        self.scale, self.weight = random(HIDDEN), random(WIDE, HIDDEN, scale=HIDDEN ** -0.5)
        self.x = random(ROWS, HIDDEN)
        self.out = torch.zeros(ROWS, WIDE, device="cuda", dtype=torch.bfloat16)

    def build(self, products=None, buffer_bytes=ROWS * HIDDEN * 2, outs=None):
        builder = kw.ChainBuilder()
        x, normal = builder.parameter(self.x), builder.buffer(buffer_bytes)
        out = builder.parameter(self.out) if outs is None else outs
        names = [argument["name"] for argument in self.norm.summary["arguments"]]
        self.assertEqual(names[:3], ["x", "w", "y"])
        builder.add(self.norm, x, self.scale, normal, 1e-5)
        builder.add(products or self.products[0], normal, self.weight, out)
        return builder.build()

    def expected(self, x):
        normal, out = torch.empty_like(x), torch.empty_like(self.out)
        self.norm(x, self.scale, normal, 1e-5)
        self.products[0](normal, self.weight, out)
        return out

    def test_every_path_gives_what_calls_give(self):
        chain = self.build()
        self.assertEqual((chain.kernels, chain.path), (2, "graph"))
        self.assertGreaterEqual(chain.memory_bytes, ROWS * HIDDEN * 2)
        expected = self.expected(self.x)
        for path in chain.paths:
            chain.set_path(path)
            self.out.zero_()
            chain()
            self.assertTrue(torch.equal(self.out, expected), path)
        with self.assertRaises(kw.Error):
            chain.set_path("teleport")

    def test_parameters_are_given_anew(self):
        chain = self.build()
        x, out = random(ROWS, HIDDEN), torch.empty_like(self.out)
        expected = self.expected(x)
        chain.rebind(x, out)
        chain.launch()
        self.assertTrue(torch.equal(out, expected))
        for wrong in ((x,), (x.float(), out), (x[:8], out), (x, out.t()), (x.cpu(), out)):
            with self.assertRaises(kw.Error):
                chain.rebind(*wrong)

    def test_tuning_chooses_among_the_kernels_of_a_step(self):
        chain = self.build(self.products)
        times = chain.tune()
        self.assertEqual([time.path for time in times], chain.paths)
        self.assertTrue(all(time.period_us > 0 and time.host_us > 0 for time in times))
        self.assertEqual(len(chain.chosen), 2)
        chain()
        error = (self.out.float() - self.expected(self.x).float()).abs().max().item()
        self.assertLess(error, 0.1)

    def test_a_capture_takes_it(self):
        chain, expected = self.build(), self.expected(self.x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain.add_to_capture()
        self.out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(self.out, expected))
        del graph

    def test_it_runs_on_the_current_stream(self):
        chain, expected = self.build(), self.expected(self.x)
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        for stream in (None, side, side.cuda_stream):
            self.out.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                chain(stream=stream)
            self.assertFalse(side.query())
            torch.cuda.current_stream().synchronize()
            self.assertFalse(self.out.any())  # it waits behind the work of the stream
            side.synchronize()
            self.assertTrue(torch.equal(self.out, expected))

    def test_a_slot_may_lie_within_a_parameter(self):
        both = torch.zeros(2, ROWS, WIDE, device="cuda", dtype=torch.bfloat16)
        builder = kw.ChainBuilder()
        outs, normal = builder.parameter(both), builder.buffer(ROWS * HIDDEN * 2)
        builder.add(self.norm, self.x, self.scale, normal, 1e-5)
        builder.add(self.products[0], normal, self.weight, outs.at(ROWS * WIDE * 2))
        builder.build()()
        self.assertFalse(both[0].any())
        self.assertTrue(torch.equal(both[1], self.expected(self.x)))

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(kw.Error, "buffer"):
            self.build(buffer_bytes=16)
        with self.assertRaisesRegex(kw.Error, "overlaps"):
            self.build(outs=self.weight.view(-1)[:ROWS * WIDE].view(ROWS, WIDE))
        other = kw.default_service().kernel(f"matmul m={ROWS} n={WIDE} k={HIDDEN} dtype=bf16 activation=silu")
        with self.assertRaises(kw.Error):
            self.build([self.products[0], other])


if __name__ == "__main__":
    unittest.main()
