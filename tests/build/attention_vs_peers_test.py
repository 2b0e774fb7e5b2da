#!/usr/bin/env python3
"""The parts of bench/vendor/attention_*.py that need neither PyTorch nor a GPU:
attention_vs_peers_test.py KERNWRIGHT, the program, which says what is a problem."""

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
                for mask, window in (("none", 0), ("causal", 0), ("window", 1), ("window", 4), ("window", 99)):
                    seen = 0
                    for i in range(queries):
                        position = i + keys - queries
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
        return bench.make_rows("attention p", "A", self.SHAPE, self.RESULT, "abc")

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
