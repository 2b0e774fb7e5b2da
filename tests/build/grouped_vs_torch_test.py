#!/usr/bin/env python3
"""The parts of bench/vendor/grouped_vs_torch.py that need neither PyTorch nor a GPU."""

import pathlib
import random
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/vendor"))
import grouped_vs_torch as bench  # noqa: E402
import rows_vs_pytorch as rows  # noqa: E402


class ShapesTest(unittest.TestCase):
    def test_the_list_has_problems_of_three_models(self):
        self.assertEqual(len(bench.SHAPES), 24)
        self.assertEqual(len(set(bench.SHAPES.values())), 24)
        for _, text in bench.SHAPES.values():
            name, values = rows.parse_problem(text)
            self.assertEqual(name, "grouped_matmul")
            self.assertIn((values["n"], values["k"]), sum(bench.MODELS.values(), ()))

    def test_random_shapes_are_others_and_the_same_for_a_seed(self):
        shapes = bench.random_shapes(20, 3)
        self.assertEqual(shapes, bench.random_shapes(20, 3))
        self.assertNotEqual(shapes, bench.random_shapes(20, 4))
        self.assertFalse(set(shapes.values()) & set(bench.SHAPES.values()))


class GroupsTest(unittest.TestCase):
    def test_ends_rise_to_all_rows(self):
        for groups, count, kind in ((8, 1000, "skewed"), (8, 1000, "even"), (128, 8, "even"), (1, 5, "skewed")):
            ends = bench.group_ends(groups, count, kind, random.Random(1))
            self.assertEqual(len(ends), groups)
            self.assertEqual(ends, sorted(ends))
            self.assertEqual(ends[-1], count)

    def test_fewer_rows_than_groups_go_to_different_groups(self):
        ends = bench.group_ends(128, 8, "even", random.Random(1))
        self.assertEqual(max(end - begin for begin, end in zip([0, *ends], ends)), 1)


class RowsTest(unittest.TestCase):
    def test_ratios_are_of_medians_and_the_dense_product_is_no_peer(self):
        samples = {"ours": [10.0, 11.0, 10.0], "dense": [9.0] * 3, "torch_mm": [30.0] * 3, "torch_grouped_mm": [20.0] * 3}
        new = bench.make_rows("p", "even", 1e9, samples, {}, "c", "commit")
        self.assertEqual([row["ratio"] for row in new], [0.9, 3.0, 2.0])
        self.assertEqual(new[0]["ours_tflops"], 100.0)
        self.assertEqual(bench.summary(new), "2.000 times the best peer over 1 problems, the least 2.000")
        self.assertEqual(bench.summary([]), "no peer")


if __name__ == "__main__":
    unittest.main()
