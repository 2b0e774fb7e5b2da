#!/usr/bin/env python3
"""The parts of bench/vendor/attention_*.py that need neither PyTorch nor a GPU:
attention_vs_peers_test.py KERNWRIGHT, the program, which says what is a problem."""

import itertools
import json
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import attention_counters as counters  # noqa: E402
import attention_peers as peers  # noqa: E402
import attention_problems as problems  # noqa: E402
import attention_vs_peers as bench  # noqa: E402

PROGRAM = sys.argv.pop(1)


class ShapesTest(unittest.TestCase):
    def test_every_shape_is_a_problem(self):
        for number, (_, problem) in problems.SHAPES.items():
            self.assertIsNone(bench.refusal(PROGRAM, problem), number)
        self.assertIsNotNone(bench.refusal(PROGRAM, problems.problem_text(1, 3, 2, 8, 8, 64)))

    def test_others_are_of_the_same_classes_new_and_problems(self):
        drawn = problems.random_shapes(60, 7)
        self.assertEqual(drawn, problems.random_shapes(60, 7))
        self.assertNotEqual(drawn, problems.random_shapes(60, 8))
        self.assertEqual(len(set(drawn.values()) | set(problems.SHAPES.values())), 60 + len(problems.SHAPES))
        self.assertLessEqual({name for name, _ in drawn.values()}, {name for name, _ in problems.SHAPES.values()})
        for _, problem in drawn.values():
            self.assertIsNone(bench.refusal(PROGRAM, problem), problem)

    def test_shapes_are_chosen_by_number_and_class(self):
        self.assertTrue(problems.wanted(3, "A", None))
        self.assertTrue(problems.wanted(3, "A", ["J", "3"]))
        self.assertTrue(problems.wanted(3, "A", ["A"]))
        self.assertFalse(problems.wanted(3, "A", ["J", "30"]))


class LengthsTest(unittest.TestCase):
    def test_unequal_lengths_have_their_sum_and_longest(self):
        for count, total, longest in ((32, 32768, 4096), (8, 9000, 2000), (3, 7, 5), (4, 400, 100)):
            lengths = problems.sequence_lengths(count, total, longest)
            self.assertEqual((len(lengths), sum(lengths)), (count, total))
            self.assertLessEqual(max(lengths), longest)
            self.assertEqual(lengths, sorted(lengths))
        self.assertGreater(problems.sequence_lengths(32, 32768, 4096)[-1], 3500)

    def test_pages_are_taken_once(self):
        shape = problems.Shape(problems.problem_text(3, 4, 4, 2, 100, 64, "kv_total=200 lengths=kv cache=paged page=8"))
        table = problems.page_table(shape, 50)
        taken = [page for row, keys in zip(table, shape.kv_lengths) for page in row[:-(-keys // 8)]]
        self.assertEqual(len(set(taken)), len(taken))
        self.assertEqual({len(row) for row in table}, {13})
        self.assertLess(max(taken), 50)

    def test_the_first_and_last_queries_are_compared(self):
        shape = problems.Shape(problems.problem_text(2, 4, 4, 1000, 1000, 64))
        for _, queries in shape.sampled():
            self.assertEqual((queries[0], queries[-1], len(queries)), (0, 999, problems.SAMPLED))
        shape = problems.Shape(problems.problem_text(2, 4, 4, 3, 1000, 64))
        self.assertEqual([queries for _, queries in shape.sampled()], [[0, 1, 2]] * 2)


class CountsTest(unittest.TestCase):
    def test_only_what_is_seen_is_counted(self):
        for queries in (1, 2, 7, 16):
            for keys in (0, 1, 5, 16, 40):
                for mask, window in (("none", 0), ("causal", 0), ("window", 1), ("window", 4), ("window", 99),
                                     ("causal_first", 0)):
                    seen = 0
                    for i in range(queries):
                        position = i if mask == "causal_first" else i + keys - queries
                        for j in range(keys):
                            seen += mask == "none" or (j <= position and (not window or j > position - window))
                    self.assertEqual(problems.visible_pairs(queries, keys, mask, window), seen,
                                     (queries, keys, mask, window))

    def test_decode_reads_its_cache(self):
        shape = problems.Shape(problems.SHAPES[18][1])
        self.assertEqual(shape.bytes(), 2 * 16 * (32 + 4096 * 8) * 256)
        window = problems.Shape(problems.problem_text(1, 8, 8, 1, 4096, 64, "mask=window window=128"))
        self.assertEqual(window.bytes(), 2 * 8 * (1 + 128) * 128)
        narrow = problems.Shape(problems.SHAPES[23][1])
        self.assertEqual(narrow.bytes(), 2 * 32 * 256 + 65536 * 4 * 256)


class RowsTest(unittest.TestCase):
    SHAPE = problems.Shape(problems.SHAPES[1][1])
    RESULT = {"samples": {"ours": [10.0, 11.0, 12.0], "first": [20.0], "sdpa_cudnn": [22.0], "flex": [5.0]},
              "errors": {"ours": 2e-3, "first": 2e-3, "sdpa_cudnn": 3e-3, "flex": 0.9},
              "reasons": {"flashinfer": "no module", "sdpa_cudnn": "one of two ways", "first": "no"},
              "notes": {"sdpa_cudnn": "dense", "flex": "wrong: compiled"},
              "configuration": "attention/wave WGS=2", "seconds": 9.0}

    def rows(self):
        return bench.make_rows(problems.SHAPES[1][1], "A", self.SHAPE, self.RESULT, "abc")

    def test_every_peer_has_a_row_timed_or_not(self):
        made = {row["peer"]: row for row in self.rows()}
        self.assertEqual(list(made), ["sdpa_cudnn", "flex", "flashinfer"])
        cudnn = made["sdpa_cudnn"]
        self.assertEqual((cudnn["ours_us"], cudnn["first_us"], cudnn["peer_us"], cudnn["ratio"], cudnn["note"]),
                         (11.0, 20.0, 22.0, 2.0, "dense"))
        self.assertEqual((cudnn["error"], cudnn["peer_error"], cudnn["class"]), (2e-3, 3e-3, "A"))
        missing = made["flashinfer"]
        self.assertEqual((missing["peer_us"], missing["ratio"], missing["note"]), (None, None, "no module"))

    def test_a_wrong_peer_is_no_bar(self):
        line = bench.table_line(1, self.rows(), 9)
        self.assertIn("2.000 of the best of sdpa_cudnn 22.0;", line)
        self.assertIn("11.0 us (first 20.0)", line)

    def test_what_is_refused_is_listed(self):
        row = bench.unsupported_row("attention p", "N", "no fp8", "abc")
        self.assertEqual(set(row) ^ set(self.rows()[0]), {"ours_tflops", "ours_gbps", "seconds"})
        self.assertIn("unsupported: no fp8", bench.table_line(17, [row], 0))

    def test_reasons_are_one_line(self):
        self.assertEqual(bench.reason_of(peers.Refused("no pages\nhere")), "Refused: no pages")
        self.assertEqual(bench.reason_of(KeyError()), "KeyError")


    def test_an_error_above_the_tolerance_is_wrong(self):
        for errors, wrong in (({"ours": 2.1e-2, "first": 2e-3}, True), ({"ours": 2e-3, "first": 19.0}, True),
                              ({"ours": math.nan, "first": 2e-3}, True), ({"ours": 2e-3}, False)):
            made = bench.make_rows(problems.SHAPES[1][1], "A", self.SHAPE, {**self.RESULT, "errors": errors}, "abc")
            self.assertEqual(bench.is_wrong(made[0]), wrong, errors)
            self.assertEqual(" WRONG" in bench.table_line(1, made, 9), wrong, errors)


class ReferenceTest(unittest.TestCase):
    """On the CPU, against sums that are written out."""

    TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "templates/attention/operation.json"

    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        self.torch = torch
        torch.manual_seed(1)
        problems.DEVICE = "cpu"

    def inputs(self, shape, **more):
        torch = self.torch
        t = {"q": torch.randn(shape.batch, shape.q_len, shape.heads, shape.head_dim),
             "k": torch.randn(shape.batch, shape.kv_len, shape.kv_heads, shape.head_dim),
             "v": torch.randn(shape.batch, shape.kv_len, shape.kv_heads, shape.head_dim_v), **more}
        if shape.layout == "bhsd":
            t.update({name: t[name].transpose(1, 2).contiguous() for name in "qkv"})
        return t

    def written_out(self, shape, q, k, v, score):
        """Returns o and lse for tensors with tokens outside; `score` changes the score of (sequence, head, i,
        j)."""
        o = self.torch.zeros(shape.batch, shape.q_len, shape.heads, shape.head_dim_v, dtype=self.torch.double)
        lse = self.torch.zeros(shape.batch, shape.q_len, shape.heads, dtype=self.torch.double)
        for b, i, h in itertools.product(range(shape.batch), range(shape.q_len), range(shape.heads)):
            g = h // (shape.heads // shape.kv_heads)
            s = self.torch.stack([score(b, h, i, j, q[b, i, h].double() @ k[b, j, g].double() /
                                        math.sqrt(shape.head_dim)) for j in range(shape.kv_len)])
            o[b, i, h] = self.torch.softmax(s, 0) @ v[b, :, g].double()
            lse[b, i, h] = self.torch.logsumexp(s, 0)
        return o.flatten(0, 1), lse.flatten(0, 1)

    def compare(self, more, score, changed=None, **inputs):
        shape = problems.Shape(problems.problem_text(2, 4, 2, 3, 5, 8, more, dtype="fp16"))
        t = self.inputs(shape, **inputs)
        q, k, v = (problems.tokens_first(shape, t[name]) for name in "qkv")
        if changed:
            q, k, v = changed(q, k, v)
        o, lse = self.written_out(shape, q, k, v, score)
        places, rows, logarithms = problems.reference(self.torch, shape, t)
        self.assertTrue(self.torch.allclose(rows, o[places], atol=1e-5), more)
        self.assertTrue(self.torch.allclose(logarithms, lse[places], atol=1e-5), more)
        unit = 1 / math.log(2) if "base2" in more else 1
        given = (lse * unit).view(2, 3, 4).transpose(1, 2)
        expected = places, rows, logarithms
        self.assertLess(problems.worst_logarithm(self.torch, shape, given, expected), 1e-6)
        self.assertGreater(problems.worst_logarithm(self.torch, shape, given + 1, expected), 0.05)
        self.assertLess(problems.worst_row(self.torch, shape, o.view(2, 3, 4, 8), expected), 1e-2)

    def test_all_flags_of_the_operation_are_known(self):
        operation = json.loads(self.TEMPLATE.read_text())
        self.assertEqual(set(operation["flags"]), set(problems.FLAGS))
        self.assertEqual(set(operation["dims"]), problems.DIMS)
        self.assertEqual(set(operation["dtypes"]), problems.DTYPES)
        with self.assertRaisesRegex(ValueError, "does not know hue"):
            problems.Shape(problems.problem_text(1, 1, 1, 1, 1, 8, "hue=red"))

    def test_flags_of_scores(self):
        def plain(b, h, i, j, s):
            return s
        slopes = self.torch.rand(4)
        self.compare("", plain)
        self.compare("layout=bhsd lse=base2", plain)
        self.compare("softcap=tanh", lambda b, h, i, j, s: 50 * self.torch.tanh(s / 50))
        self.compare("bias=alibi", lambda b, h, i, j, s: s - slopes[h].double() * abs(i + 5 - 3 - j), slopes=slopes)

    def test_biases(self):
        torch = self.torch
        hidden = torch.tensor(-math.inf, dtype=torch.double)

        def first(b, h, i, j, s):
            return s if j <= i else hidden
        self.compare("mask=causal_first", first)
        seen = torch.rand(2, 1, 3, 5) < 0.7
        seen[..., 0] = True
        self.compare("bias=boolean bias_heads=1", lambda b, h, i, j, s: s if seen[b, 0, i, j] else hidden, seen=seen)
        bias = torch.randn(1, 4, 1, 5)
        self.compare("bias=additive bias_dtype=fp32 bias_batch=1 bias_q=1",
                     lambda b, h, i, j, s: s + bias[0, h, 0, j].double(), bias=bias)

    def test_scales_of_heads(self):
        scales = {f"{name}_descale": self.torch.rand(2, 2) + 0.5 for name in "qkv"}
        self.compare("descale=head kv=fp8_e4m3", lambda b, h, i, j, s: s, lambda q, k, v: (
            q * scales["q_descale"].repeat_interleave(2, 1)[:, None, :, None],
            *(x * scales[f"{name}_descale"][:, None, :, None] for name, x in (("k", k), ("v", v)))), **scales)

    def test_a_new_token_is_rotated_and_the_last_key(self):
        torch = self.torch
        for append, pairs in itertools.product(("rope", "norm_rope"), ("halves", "neighbours")):
            shape = problems.Shape(problems.problem_text(2, 2, 2, 1, 4, 4, f"lengths=kv append={append} pairs={pairs}"))
            t = self.inputs(shape, k_new=torch.randn(2, 1, 2, 4), v_new=torch.randn(2, 1, 2, 4),
                            q_norm=torch.rand(4) + 0.5, k_norm=torch.rand(4) + 0.5,
                            cosine=torch.randn(4, 2), sine=torch.randn(4, 2))

            def turn(x, norm):
                y = x.double()
                if append == "norm_rope":
                    y = y / (y.square().mean() + 1e-6).sqrt() * t[norm].double()
                out = torch.zeros(4, dtype=torch.double)
                for pair in range(2):
                    a, b = (pair, pair + 2) if pairs == "halves" else (2 * pair, 2 * pair + 1)
                    c, s = t["cosine"][3, pair].double(), t["sine"][3, pair].double()
                    out[a], out[b] = y[a] * c - y[b] * s, y[b] * c + y[a] * s
                return out.float()

            q = torch.stack([turn(t["q"][b, 0, h], "q_norm") for b in range(2) for h in range(2)]).view(2, 1, 2, 4)
            k, v = t["k"].clone(), t["v"].clone()
            k[:, 3] = torch.stack([turn(t["k_new"][b, 0, h], "k_norm") for b in range(2) for h in range(2)]).view(2, 2, 4)
            v[:, 3] = t["v_new"][:, 0]
            o, _ = self.written_out(shape, q, k, v, lambda b, h, i, j, s: s)
            places, rows, _ = problems.reference(torch, shape, t)
            self.assertTrue(torch.allclose(rows, o[places], atol=1e-5), (append, pairs))
            self.assertLess(problems.worst_new_entry(torch, shape, {**t, "k": k, "v": v}, t), 1e-6)
            self.assertGreater(problems.worst_new_entry(torch, shape, t, t), 0.1)

    def test_rows_may_lie_apart(self):
        x = problems.strided(self.torch, [2, 3, 4, 8], [120, 40, 8, 1], "bf16")
        self.assertEqual((tuple(x.shape), x.stride()), ((2, 3, 4, 8), (120, 40, 8, 1)))


class CountersTest(unittest.TestCase):
    def test_kernels_are_read_from_what_ncu_writes(self):
        head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value","Rule Description"'
        ours = '"0","attention_wave(const int *)",'
        lines = ["==PROF== Connected", head, ours + '"Duration","ns","12,500",""',
                 ours + '"Grid Size","","132",""', ours + '"Stack Size","","1,024",""',
                 ours + '"","","","Tensor is the highest-utilized pipeline (70.0%) based on"',
                 '"1","cudnn","DRAM Throughput","%","88.5",""']
        self.assertEqual(counters.read_counters("\n".join(lines)),
                         [{"kernel": "attention_wave", "us": 12.5, "blocks": 132.0, "busiest_pipeline": "Tensor"},
                          {"kernel": "cudnn", "dram_percent": 88.5}])
        with self.assertRaisesRegex(RuntimeError, "permission"):
            counters.read_counters("==ERROR== no permission")


if __name__ == "__main__":
    unittest.main()
