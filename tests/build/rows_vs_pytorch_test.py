#!/usr/bin/env python3
"""The parts of bench/vendor/rows_vs_pytorch.py that need neither PyTorch nor a GPU."""

import importlib.util
import json
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("rows_vs_pytorch", ROOT / "bench/vendor/rows_vs_pytorch.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def tensor(name, extent, dtype="bf16", output=False):
    return {"name": name, "extent": extent, "dtype": dtype, "output": output, "scalar": False}


class ProblemTest(unittest.TestCase):
    def test_sizes_are_numbers_and_flags_are_words(self):
        self.assertEqual(bench.parse_problem("rmsnorm rows=2 columns=30 dtype=bf16 weight=none"),
                         ("rmsnorm", {"rows": 2, "columns": 30, "dtype": "bf16", "weight": "none"}))

    def test_filters_name_operations_and_shapes(self):
        text = "softmax rows=4096 columns=8192 dtype=bf16"
        self.assertTrue(bench.wanted(text, None, None))
        self.assertTrue(bench.wanted(text, ["softmax"], ["1x1", "4096x8192"]))
        self.assertFalse(bench.wanted(text, ["rmsnorm"], None))
        self.assertFalse(bench.wanted(text, None, ["4096x819"]))

    def test_the_worklists_can_be_read(self):
        for name in ("rows", "pointwise"):
            path = ROOT / f"bench/worklists/{name}_hopper.json"
            if path.exists():
                for text in json.loads(path.read_text())["problems"]:
                    name, values = bench.parse_problem(text)
                    self.assertIn("dtype", values, text)


class BytesTest(unittest.TestCase):
    def test_every_tensor_counts_once_and_scalars_do_not(self):
        arguments = [tensor("x", [4, 8]), tensor("w", [8], "fp32"), tensor("y", [4, 8], "fp8_e4m3", True),
                     {"name": "eps", "extent": [], "dtype": "fp32", "output": False, "scalar": True}]
        self.assertEqual(bench.tensor_bytes(arguments), 64 + 32 + 32)

    def test_the_gold_line_is_a_launch_and_the_bytes(self):
        self.assertAlmostEqual(bench.gold_line_us(4096 * 8192 * 4), 32.45, places=2)

    def test_sets_pass_three_times_the_l2(self):
        for moved in (1 << 21, 1 << 25, 1 << 27):
            self.assertGreaterEqual(bench.set_count(moved) * moved, 3 * bench.L2_BYTES)
        self.assertEqual(bench.set_count(1 << 40), 2)
        self.assertEqual(bench.set_count(1), bench.MAX_SETS)


class RowsTest(unittest.TestCase):
    SAMPLES = {"ours": [2.0, 2.0, 3.0], "torch_eager": [4.0, 5.0, 4.0]}

    def rows(self, problem="p", commit="c"):
        return bench.make_rows(problem, 4350000, self.SAMPLES, "w", "", commit)

    def test_a_row_per_peer_and_the_gold_line(self):
        eager, gold = self.rows()
        self.assertEqual((eager["peer"], eager["ours_us"], eager["peer_us"], eager["ratio"]),
                         ("torch_eager", 2.0, 4.0, 2.0))
        self.assertEqual((gold["peer"], gold["peer_us"], gold["ratio"]), ("gold_line", 2.6, 1.3))
        self.assertEqual(eager["ours_gbps"], 2175)

    def test_a_row_measured_again_replaces_the_old_one(self):
        rows = []
        for commit in ("old", "new"):
            for row in self.rows(commit=commit) + self.rows("other"):
                rows = bench.merge(rows, row)
        self.assertEqual([(row["problem"], row["peer"]) for row in rows],
                         [("p", "torch_eager"), ("p", "gold_line"), ("other", "torch_eager"),
                          ("other", "gold_line")])
        self.assertTrue(bench.has_current(rows, "p", "new"))
        self.assertFalse(bench.has_current(rows, "p", "old"))


class SelectionTest(unittest.TestCase):
    class Timed:
        def __init__(self, us):
            self.us = us

        def sample(self):
            return self.us

    def test_the_best_way_of_a_peer_is_reported_under_its_name(self):
        ways = {"ours": self.Timed(3), "torch_compile:default": self.Timed(2), "torch_compile:max": self.Timed(1)}
        chosen = bench.select(ways, bench.random.Random(1))
        self.assertEqual({name: one.us for name, one in chosen.items()}, {"ours": 3, "torch_compile": 1})
        taken = bench.take_rounds(chosen, 4, bench.random.Random(1))
        self.assertEqual(taken, {"ours": [3] * 4, "torch_compile": [1] * 4})


if __name__ == "__main__":
    unittest.main()
