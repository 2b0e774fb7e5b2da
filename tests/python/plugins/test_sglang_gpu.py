#!/usr/bin/env python3
"""The attention backend for SGLang on a GPU, in stand-ins of SGLang, against PyTorch in fp32."""

import importlib
import sys
import types
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

if not NO_GPU:
    from sglang_parts import Batch, ForwardMode, RadixAttention, Registries, Runner, settings
    MIXED = [(37, 37), (64, 300), (5, 600), (1, 1), (1, 16), (1, 601)]
    MODES = {"decode": (ForwardMode.DECODE, [(1, 1 + 41 * i % 590) for i in range(33)]),
             "one": (ForwardMode.DECODE, [(1, 500)]),
             "extend": (ForwardMode.EXTEND, MIXED[:3]), "prompt": (ForwardMode.EXTEND, [(300, 300)]),
             "mixed": (ForwardMode.MIXED, MIXED),
             "verify": (ForwardMode.TARGET_VERIFY, [(4, 5 + 41 * i % 590) for i in range(7)])}


@unittest.skipIf(NO_GPU, NO_GPU)
class SglangGpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Our module is imported beside the stand-ins, also if SGLang is installed."""
        cls.registries, cls.name = Registries(), "kernwright.plugins.sglang_attention"
        modules = cls.registries.modules()
        cls.before = {name: sys.modules.pop(name, None) for name in (*modules, cls.name)}
        for name, members in modules.items():
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(members)
        cls.module = importlib.import_module(cls.name)

    @classmethod
    def tearDownClass(cls):
        for name, module in cls.before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module

    def setUp(self):
        self.speculate(None)

    def speculate(self, algorithm):
        self.registries.settings = settings(algorithm=algorithm, topk=1, drafts=4 if algorithm else None)

    def layers(self, heads=8, kv_heads=2, dim=64, windows=(-1,), **named):
        return [RadixAttention(heads, dim, dim ** -0.5, kv_heads, i, sliding_window_size=window, **named)
                for i, window in enumerate(windows)]

    def check(self, layers, named=None, pages=(1, 64), **changes):
        for page in pages:
            runner = Runner(layers, page, device="cuda", algorithm="EAGLE", **{"slots": 40000, **changes})
            self.speculate("EAGLE")
            backend = self.module.make_backend(runner)
            for seed, (name, (mode, sequences)) in enumerate(MODES.items()):
                batch = Batch(runner, sequences, mode, seed, gap=64)
                backend.init_forward_metadata(batch.batch)
                for layer in layers:
                    with self.subTest(page=page, mode=name, layer=layer.layer_id):
                        batch.run(backend, layer, **(named or {}))

    def test_all_kinds_of_batches(self):
        for dtype, shape in ((torch.bfloat16, (32, 8, 128)), (torch.float16, (16, 1, 256)),
                             (torch.bfloat16, (6, 2, 80))):
            with self.subTest(dtype=dtype, shape=shape):
                self.check(self.layers(*shape), dtype=dtype)

    def test_pages_of_other_sizes(self):
        self.check(self.layers(), pages=(2, 16, 256))

    def test_all_that_a_layer_may_have(self):
        self.check(self.layers(windows=(19, 499)))
        self.check(self.layers(logit_cap=20.0))
        for dtype in (torch.bfloat16, torch.float32):
            self.check(self.layers(windows=(-1, 127)), {"sinks": torch.randn(8, device="cuda").to(dtype)})

    def test_a_cache_in_fp8(self):
        for scales in ((None, None), (0.5, 2.0)):
            layers = self.layers(windows=(-1, 99))
            for layer in layers:
                layer.k_scale_float, layer.v_scale_float = scales
            with self.subTest(scales=scales):
                self.check(layers, kv=torch.float8_e4m3fn)

    def test_windows_with_a_pool_of_their_own(self):
        self.check(self.layers(windows=(-1, 99, -1, 99)), apart=True)

    def test_long_sequences_with_a_work_list(self):
        for page in (1, 64):
            layers = self.layers(32, 8, windows=(-1, 1000, -1, 1000))
            runner = Runner(layers, page, device="cuda", longest=16384, slots=60000)
            backend = self.module.make_backend(runner)
            for sequences in ([(1, 12000), (1, 40), (1, 9000), (1, 1)], [(100, 9000), (9, 40), (1, 5000), (1, 1)]):
                mode = ForwardMode.DECODE if sequences[0][0] == 1 else ForwardMode.MIXED
                batch = Batch(runner, sequences, mode)
                backend.init_forward_metadata(batch.batch)
                for layer in layers:
                    with self.subTest(page=page, mode=mode, layer=layer.layer_id):
                        batch.run(backend, layer)

    def test_metadata_waits_for_nothing(self):
        runner = Runner(self.layers(windows=(-1, 99)), 64, device="cuda", slots=40000, apart=True)
        backend = self.module.make_backend(runner)
        for mode, sequences in (MODES["decode"], MODES["mixed"]):
            batch = Batch(runner, sequences, mode).batch
            backend.init_forward_metadata(batch)
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                backend.init_forward_metadata(batch)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_graphs_are_replayed_with_other_batches(self):
        for page, algorithm, apart, longest in ((1, None, False, 700), (64, None, True, 700), (1, "EAGLE", True, 700),
                                                (64, "EAGLE", False, 8000), (1, None, False, 8000)):
            with self.subTest(page=page, algorithm=algorithm, apart=apart, longest=longest):
                self.check_graphs(page, algorithm, apart, longest)

    def check_graphs(self, page, algorithm, apart, longest):
        self.speculate(algorithm)
        layers, new = self.layers(32, 8, windows=(-1, 99, -1, 99)), 4 if algorithm else 1
        mode = ForwardMode.TARGET_VERIFY if algorithm else ForwardMode.DECODE
        runner = Runner(layers, page, device="cuda", slots=80000, apart=apart, longest=longest, algorithm=algorithm)
        backend = self.module.make_backend(runner)
        backend.init_cuda_graph_state(8, 8 * new)
        sizes = [heads * 64 for heads in (32, 8, 8)]
        graphs = {}
        for count in (8, 4):
            given = Batch(runner, [(new, new + 1)] * count, mode)
            given.batch.req_pool_indices.zero_()
            given.batch.seq_lens.fill_(1)
            given.batch.seq_lens_cpu.fill_(1)
            backend.init_forward_metadata_out_graph(given.batch, in_capture=True)

            def run(qkv, outs):
                q, k, v = qkv.split(sizes, 1)
                backend.init_forward_metadata_in_graph(given.batch)
                k, v = (x.unflatten(1, (-1, 64)) for x in (k, v))
                for layer, out in zip(layers, outs):
                    out.copy_(backend.forward(q, k, v, layer, given.batch))

            qkv, outs = given.qkv.clone(), [torch.empty_like(given.q) for _ in layers]
            for _ in range(2):
                run(qkv, outs)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(qkv, outs)
            graphs[count] = graph, qkv, outs
        for seed, (count, real) in enumerate(((8, 8), (4, 3), (8, 5), (4, 1), (8, 7))):
            sequences = [(new, new + 997 * (i + seed) % (longest - 200) + 1) for i in range(real)]
            batch = Batch(runner, sequences, mode, seed, padding=count - real)
            graph, qkv, outs = graphs[count]
            before = []
            for layer in layers:
                batch.fill(layer)
                before.append([half.clone() for half in batch.halves(layer)])
            qkv.copy_(batch.qkv)
            backend.init_forward_metadata_out_graph(batch.batch)
            graph.replay()
            torch.cuda.synchronize()
            for layer, old, out in zip(layers, before, outs):
                batch.check(layer, old, out)
                self.assertFalse(out[batch.tokens:].any(), "padding has a result")


if __name__ == "__main__":
    unittest.main()
