#!/usr/bin/env python3
"""Attention over an engine's paged cache, which the plug-ins' backends call, against PyTorch in fp32."""

import random
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

if not NO_GPU:
    from paged_reference import attended
    from kernwright.plugins._paged import PagedAttention, Sequences, bound_of

PAGE = 16
MIXED = [(1, 5), (1, 600), (1, 16), (37, 37), (64, 300), (1, 1), (100, 101)]


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def layer(heads=8, kv_heads=2, head_dim=64, **named):
    return PagedAttention(heads, kv_heads, head_dim, head_dim ** -0.5, **named)


class Step:
    """A step of `sequences`, pairs of new tokens and of keys with these, whose pages are anywhere in a pool.
    Elements of the pool that no sequence has are NaN, and table entries behind a sequence far out of it."""

    def __init__(self, sequences, of, dtype=None, longest=600, gap=0, seed=0, pages=None):
        torch.manual_seed(seed)
        self.sequences, self.layer, dtype = sequences, of, dtype or torch.bfloat16
        pages = pages or sum(-(-keys // PAGE) for _, keys in sequences) + 7
        free = random.Random(seed).sample(range(pages), pages)
        table = torch.full((len(sequences), -(-longest // PAGE)), 2**30, dtype=torch.int32)
        for row, (_, keys) in zip(table, sequences):
            own = [free.pop() for _ in range(-(-keys // PAGE))]
            row[:len(own)] = torch.tensor(own)
        self.table = table.cuda()
        kv = torch.float8_e4m3fn if of.scales else dtype
        self.caches = tuple(torch.full((pages, PAGE, of.kv_heads, of.head_dim), torch.nan,
                                       device="cuda").to(kv) for _ in "kv")
        for i, (new, keys) in enumerate(sequences):
            for cache in self.caches:
                old = torch.randn(max(keys - new, 0), of.kv_heads, of.head_dim, device="cuda").to(kv)
                self.rows(cache)[self.places(i)[:len(old)]] = old.view(torch.uint8)
        sizes = [heads * of.head_dim for heads in (of.heads, of.kv_heads, of.kv_heads)]
        tokens = sum(new for new, _ in sequences)
        self.qkv = torch.randn(tokens, sum(sizes) + gap, device="cuda").to(dtype)
        self.q, self.k, self.v = (part.unflatten(1, (-1, of.head_dim)) for part in
                                  self.qkv[:, :sum(sizes)].split(sizes, 1))
        self.offsets = ints([sum(new for new, _ in sequences[:i]) for i in range(len(sequences) + 1)])
        self.lengths = ints([keys for _, keys in sequences])
        self.new_places = torch.cat([
            self.places(i)[-new:] if keys else torch.full((new,), -1, device="cuda")
            for i, (new, keys) in enumerate(sequences)])
        self.out = torch.full(self.q.shape, torch.nan, device="cuda").to(dtype)

    @staticmethod
    def rows(cache):
        """The bytes of a pool by tokens; few operators of PyTorch take fp8."""
        return cache.flatten(0, 1).view(torch.uint8)

    def places(self, i):
        """The rows of a sequence's keys."""
        at = torch.arange(self.sequences[i][1], device="cuda")
        return self.table[i].long()[at // PAGE] * PAGE + at % PAGE

    def of(self, first=0):
        """The sequences from `first` on, as those of a prompt."""
        news = [new for new, _ in self.sequences[first:]]
        return Sequences(sum(news), bound_of(max(news), sum(news), len(news)), self.lengths[first:],
                         self.table[first:], self.offsets[first:] - self.offsets[first])

    def even(self, last=None):
        """The sequences up to `last`, which have equally many new tokens."""
        news = [new for new, _ in self.sequences[:last]]
        return Sequences(sum(news), news[0], self.lengths[:last], self.table[:last])

    def run(self, *parts):
        """Appends, and attends by parts, each with its first token and a work list, or None."""
        self.layer.append(self.k, self.v, self.new_places, self.caches)
        for of, first, work in parts:
            self.layer.attend(self.q[first:], self.caches, self.out[first:], of, work)


@unittest.skipIf(NO_GPU, NO_GPU)
class PagedGpuTest(unittest.TestCase):
    def check(self, step, tolerance=1e-2):
        of, last = step.layer, 0
        for i, (new, keys) in enumerate(step.sequences):
            tokens, last = slice(last, last + new), last + new
            if keys == 0:
                self.assertFalse(step.out[tokens].any(), f"padding, sequence {i}")
                continue
            there = []
            for cache, x, scale in zip(step.caches, (step.k, step.v), of.scales or (1.0, 1.0)):
                there.append(step.rows(cache)[step.places(i)].view(cache.dtype))
                wanted = (x[tokens].float() / scale).to(cache.dtype)
                self.assertTrue(torch.equal(there[-1][keys - new:].float(), wanted.float()),
                                f"appended, sequence {i}")
            wanted = attended(of, step.q[tokens], *there)
            error = (step.out[tokens].float() - wanted).abs().max().item()
            self.assertLess(error, tolerance * max(wanted.abs().max().item(), 1), f"sequence {i}")

    def test_sequences_with_any_numbers_of_tokens(self):
        for dtype in (torch.bfloat16, torch.float16):
            for shape in ((8, 2, 64), (4, 4, 128), (32, 8, 64), (16, 1, 256), (6, 2, 80)):
                with self.subTest(dtype=dtype, shape=shape):
                    step = Step(MIXED, layer(*shape), dtype)
                    step.run((step.of(), 0, None))
                    self.check(step)

    def test_sequences_with_equally_many_tokens(self):
        for new in (1, 3, 5):
            for count in (1, 2, 33):
                with self.subTest(new=new, count=count):
                    sequences = [(new, new + 41 * i % 590) for i in range(count)]
                    step = Step(sequences, layer(), seed=new * count, gap=64)
                    step.run((step.even(), 0, None))
                    self.check(step)

    def test_all_that_a_layer_may_have(self):
        sinks = torch.randn(8, device="cuda")
        for named in ({"window": 20}, {"window": 500}, {"softcap": 20.0}, {"sinks": sinks},
                      {"slopes": 2.0 ** -torch.arange(1.0, 9, device="cuda")}, {"scales": (0.5, 2.0)},
                      {"scales": (0.5, 2.0), "window": 100},
                      {"window": 128, "sinks": sinks, "softcap": 30.0}):
            for parts in (1, 2):
                with self.subTest(parts=parts, **{name: str(value) for name, value in named.items()}):
                    step = Step(MIXED, layer(**named))
                    step.run(*([(step.of(), 0, None)] if parts == 1 else
                               [(step.even(3), 0, None), (step.of(3), 3, None)]))
                    self.check(step, 3e-2 if step.layer.scales else 1e-2)

    def test_padding_goes_nowhere(self):
        step = Step([(1, 30), (1, 600), (1, 0), (1, 0)], layer())
        before = [step.rows(cache).clone() for cache in step.caches]
        step.run((step.even(), 0, None))
        self.check(step)
        for cache, old in zip(step.caches, before):
            self.assertEqual((step.rows(cache) != old).any(-1).any(-1).sum().item(), 2)

    def test_a_work_list(self):
        for window in (None, 100):
            with self.subTest(window=window):
                step = Step([(1, keys) for keys in (3, 9000, 40, 512, 12000, 0, 1)],
                            layer(32, 8, window=window), longest=16384)
                step.run((step.even(), 0, step.layer.schedule(step.even(), 33, PAGE)))
                self.check(step)

    def test_a_captured_step_is_replayed_with_other_sequences(self):
        for longest, slots in ((600, None), (16384, 33)):
            with self.subTest(longest=longest):
                def other(seed):
                    draw = random.Random(seed)
                    return Step([(1, draw.randint(1, 500)) for _ in range(4)] + [(1, 0)], of,
                                longest=longest, seed=seed, pages=200)

                def run():
                    work = of.schedule(step.even(), slots, PAGE) if slots else None
                    step.run((step.even(), 0, work))

                of = layer(32, 8)
                step = other(0)
                run()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    run()
                for seed in (1, 2, 3):
                    given = other(seed)
                    step.sequences = given.sequences
                    for to, source in zip(
                            (step.qkv, step.new_places, step.lengths, step.table, *map(step.rows, step.caches)),
                            (given.qkv, given.new_places, given.lengths, given.table,
                             *map(given.rows, given.caches))):
                        to.copy_(source)
                    step.out.fill_(torch.nan)
                    graph.replay()
                    torch.cuda.synchronize()
                    self.check(step)


if __name__ == "__main__":
    unittest.main()
