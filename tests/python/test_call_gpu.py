#!/usr/bin/env python3
"""Functions that are made from the contracts of operations, and attention with all that it takes,
against PyTorch in fp32 on a GPU."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

HEADS, KV_HEADS, HEAD_DIM, PAGE = 8, 2, 64, 16


def new(*shape, dtype="bfloat16"):
    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def angles(tokens):
    angle = torch.rand(tokens, HEAD_DIM // 2, device="cuda") * 6
    return angle.cos(), angle.sin()


def rotated(x, cos, sin):
    """x: [heads, tokens, head_dim] in fp32; cos and sin: [tokens, head_dim / 2]."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def attended(q, k, v, causal=False, sinks=None):
    """Attention of one sequence in fp32. q: [heads, q_len, head_dim]; k, v: [kv_heads, ...]."""
    q, k, v = (x.float() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // k.shape[0], 0) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").triu(
            1 + scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(later, -torch.inf)
    if sinks is not None:
        column = sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        return (torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ v)
    return scores.softmax(-1) @ v


class Pages:
    """Sequences of keys and values in a pool of pages in random order; other pages are NaN."""

    def __init__(self, lengths, longest, dtype="bfloat16"):
        columns = -(-longest // PAGE)
        count = len(lengths) * columns + 3
        order = torch.randperm(count, device="cuda")[:len(lengths) * columns]
        self.table = order.to(torch.int32).view(len(lengths), columns)
        self.lengths = ints(lengths)
        self.k, self.v = (new(count, KV_HEADS, PAGE, HEAD_DIM, dtype=dtype) for _ in "kv")
        if dtype == "bfloat16":
            unused = torch.ones(count, dtype=torch.bool, device="cuda")
            for row, length in zip(self.table, lengths):
                unused[row[:-(-length // PAGE)].long()] = False
            for pool in (self.k, self.v):
                pool[unused] = torch.nan

    def sequence(self, pool, i):
        """Returns the keys or values of a sequence, [kv_heads, tokens, head_dim]."""
        pages = pool[self.table[i].long()].transpose(0, 1)
        return pages.reshape(KV_HEADS, -1, HEAD_DIM)[:, :int(self.lengths[i])]


@unittest.skipIf(NO_GPU, NO_GPU)
class CallGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def near(self, result, wanted, bound=2e-2):
        torch.testing.assert_close(result.float(), wanted.float(), rtol=bound, atol=bound)

    def test_embedding_counts_tokens(self):
        table, tokens = new(1000, 72), torch.randint(0, 1000, (3, 7), device="cuda",
                                                     dtype=torch.int32)
        self.assertTrue(torch.equal(kw.embedding(tokens, table), table[tokens.long()]))
        lengths = ints(list(range(7)))
        x, counted = kw.embedding(tokens[0], table, lengths=lengths)
        self.assertTrue(torch.equal(x, table[tokens[0].long()]))
        self.assertTrue(torch.equal(counted, ints(list(range(1, 8)))))

    def test_argmax_takes_the_first_of_equals(self):
        x = new(5, 3001, dtype="float32")
        x[2, 17] = x[2, 2000] = 100
        x[3, 40] = torch.nan
        found = kw.argmax(x)
        self.assertEqual(found.tolist()[2:4], [17, 40])
        self.assertTrue(torch.equal(found.long(), x.argmax(-1)))

    def test_bias_activation(self):
        x, bias, residual = new(33, 256), new(256), new(33, 256)
        wanted = torch.nn.functional.silu(x.float() + bias.float()) + residual.float()
        self.near(kw.bias_activation(x, bias, residual=residual, activation="silu"), wanted)

    def test_kv_append_writes_the_ends_alone(self):
        lengths, longest = [5, 64, 33], 64
        k, v = new(3, KV_HEADS, 1, HEAD_DIM), new(3, KV_HEADS, 1, HEAD_DIM)
        caches = [new(3, KV_HEADS, longest, HEAD_DIM) for _ in "kv"]
        cos, sin = angles(longest)
        wanted = [cache.clone() for cache in caches]
        for i, length in enumerate(lengths):
            place = slice(length - 1, length)
            wanted[0][i, :, place] = rotated(k[i].float(), cos[place], sin[place]).bfloat16()
            wanted[1][i, :, place] = v[i]
        kw.kv_append(k, v, *caches, kv_lengths=ints(lengths), cos=cos, sin=sin)
        self.near(caches[0], wanted[0])
        self.assertTrue(torch.equal(caches[1], wanted[1]))

    def test_kv_append_to_pages(self):
        pages = Pages([5, 64, 33], 64)
        k, v = new(3, KV_HEADS, 1, HEAD_DIM), new(3, KV_HEADS, 1, HEAD_DIM)
        kw.kv_append(k, v, pages.k, pages.v, kv_lengths=pages.lengths, page_table=pages.table)
        for i in range(3):
            self.assertTrue(torch.equal(pages.sequence(pages.k, i)[:, -1], k[i, :, 0]))
            self.assertTrue(torch.equal(pages.sequence(pages.v, i)[:, -1], v[i, :, 0]))

    def test_kv_append_to_places(self):
        k, v = (new(5, KV_HEADS, HEAD_DIM) for _ in "kv")
        caches = [new(70, KV_HEADS, HEAD_DIM) for _ in "kv"]
        wanted = [cache.clone() for cache in caches]
        places = torch.tensor([69, 0, -1, 7, 8], device="cuda")
        for want, x in zip(wanted, (k, v)):
            want[places[places >= 0]] = x[places >= 0]
        kw.kv_append(*(x.transpose(0, 1) for x in (k, v, *caches)), places=places)
        for cache, want in zip(caches, wanted):
            self.assertTrue(torch.equal(cache, want))

    def test_attention_merge(self):
        q, k, v = new(1, HEADS, 40, HEAD_DIM), new(1, HEADS, 300, HEAD_DIM), new(1, HEADS, 300,
                                                                               HEAD_DIM)
        parts = [kw.attention(q, k[:, :, part].contiguous(), v[:, :, part].contiguous(),
                              return_lse=True) for part in (slice(0, 100), slice(100, 300))]
        merged = kw.attention_merge(torch.stack([part[0] for part in parts]),
                                    torch.stack([part[1] for part in parts]))
        self.near(merged, attended(q[0], k[0], v[0])[None])

    def test_attention_with_pages(self):
        for lengths in ([1, 16, 17, 250], [300], [7] * 9):
            pages, q = Pages(lengths, 300), new(len(lengths), HEADS, 1, HEAD_DIM)
            sinks = new(HEADS, dtype="float32")
            for given in (None, sinks):
                result = kw.attention(q, pages.k, pages.v, kv_lengths=pages.lengths,
                                      page_table=pages.table, sinks=given)
                for i in range(len(lengths)):
                    self.near(result[i], attended(q[i], pages.sequence(pages.k, i),
                                                  pages.sequence(pages.v, i), sinks=given))

    def test_attention_with_a_work_list(self):
        lengths = [3, 1000, 40, 512, 9]
        pages, q = Pages(lengths, 1000), new(len(lengths), HEADS, 1, HEAD_DIM)
        slots = torch.zeros(33, 8, dtype=torch.int32, device="cuda")
        kw.attention_schedule(kv_lengths=pages.lengths, kv_len=1008, kv_total=sum(lengths),
                              cache="paged", out=slots)
        result = kw.attention(q, pages.k, pages.v, kv_lengths=pages.lengths, page_table=pages.table,
                              work=slots, kv_total=sum(lengths))
        for i in range(len(lengths)):
            self.near(result[i], attended(q[i], pages.sequence(pages.k, i),
                                          pages.sequence(pages.v, i)))

    def test_attention_of_ragged_sequences(self):
        queries, keys = [40, 1, 7], [120, 64, 7]
        q, k, v = (new(sum(tokens), heads, HEAD_DIM).transpose(0, 1)
                   for tokens, heads in ((queries, HEADS), (keys, KV_HEADS), (keys, KV_HEADS)))
        q_ends = [sum(queries[:i]) for i in range(4)]
        k_ends = [sum(keys[:i]) for i in range(4)]
        result = kw.attention(q, k, v, q_offsets=ints(q_ends), kv_offsets=ints(k_ends), q_len=40,
                              kv_len=120, causal=True)
        for i in range(3):
            own, seen = slice(*q_ends[i:i + 2]), slice(*k_ends[i:i + 2])
            self.near(result[:, own], attended(q[:, own], k[:, seen], v[:, seen], causal=True))

    def test_attention_of_an_fp8_cache(self):
        q = new(3, HEADS, 1, HEAD_DIM)
        k, v = (new(3, KV_HEADS, 128, HEAD_DIM, dtype="float8_e4m3fn") for _ in "kv")
        k_scale, v_scale = (torch.rand(3, KV_HEADS, device="cuda") + 0.5 for _ in "kv")
        result = kw.attention(q, k, v, k_descale=k_scale, v_descale=v_scale)
        for i in range(3):
            self.near(result[i], attended(q[i], k[i].float() * k_scale[i].view(-1, 1, 1),
                                          v[i].float() * v_scale[i].view(-1, 1, 1)), 6e-2)
        result = kw.attention(q, k, v, k_scale=2.0, v_scale=0.5)
        for i in range(3):
            self.near(result[i], attended(q[i], k[i].float() * 2, v[i].float() / 2), 6e-2)

    def test_attention_appends_a_new_token(self):
        lengths, longest = [5, 64, 33], 64
        q = new(3, HEADS, 1, HEAD_DIM)
        k_new, v_new = new(3, KV_HEADS, 1, HEAD_DIM), new(3, KV_HEADS, 1, HEAD_DIM)
        k, v = (new(3, KV_HEADS, longest, HEAD_DIM) for _ in "kv")
        cos, sin = angles(longest)
        result = kw.attention(q, k, v, k_new=k_new, v_new=v_new, cos=cos, sin=sin,
                              kv_lengths=ints(lengths))
        for i, length in enumerate(lengths):
            place = slice(length - 1, length)
            own = rotated(q[i].float(), cos[place], sin[place])
            self.near(k[i, :, place], rotated(k_new[i].float(), cos[place], sin[place]))
            self.assertTrue(torch.equal(v[i, :, place], v_new[i]))
            self.near(result[i], attended(own, k[i, :, :length], v[i, :, :length]), 3e-2)

    def test_matmul_of_a_batch(self):
        a, b = new(5, 33, 128), new(5, 128, 72)
        self.near(kw.matmul(a, b), a.float() @ b.float(), 0.1)
        a, b = new(2, 2, 33, 128), new(2, 2, 64, 128).mT
        self.near(kw.matmul(a, b), a.float() @ b.float(), 0.1)
        self.near(kw.torch.matmul(a, b, activation="silu"),
                  torch.nn.functional.silu(a.float() @ b.float()), 0.1)

    def test_axes_that_are_last_in_memory(self):
        x = new(4, 3, 256).transpose(1, 2)
        self.near(kw.reduce(x, dim=1), x.float().sum(1), 0.1)
        kept, out = kw.reduce(x, "max", 1, keepdim=True), new(4, 1, 3)
        self.assertTrue(torch.equal(kept, x.amax(1, keepdim=True)))
        self.assertIs(kw.reduce(x, "max", 1, True, out=out), out)
        self.assertTrue(torch.equal(out, kept))
        self.assertEqual(kw.reduce(new(2, 8), dim=None, keepdim=True).shape, (1, 1))
        softmax = kw.softmax(x, 1)
        self.assertEqual((softmax.shape, softmax.stride()), (x.shape, x.stride()))
        self.near(softmax, x.float().softmax(1))
        self.near(kw.elementwise("x + y", x=x.mT, y=x.mT[None]), (2 * x.mT)[None], 1e-2)


if __name__ == "__main__":
    unittest.main()
