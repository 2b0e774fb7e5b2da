#!/usr/bin/env python3
"""The parts of bench/vendor/model_vs_torch.py and compiled_models.py that need neither PyTorch nor a GPU."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import compiled_models  # noqa: E402
import model_vs_torch as bench  # noqa: E402

KEY = {"problem": "model_vs_torch model=a case=decode-1 context=8", "model": "a", "case": "decode-1",
       "kind": "decode"}


class ModelVsTorchTest(unittest.TestCase):
    def test_cases(self):
        self.assertEqual(bench.parse_case("decode-16"), ("decode", 16))
        self.assertEqual(bench.parse_case("prefill-2048"), ("prefill", 2048))
        for text in ("decode", "decode-x", "decode-0", "train-1", "prefill-"):
            with self.assertRaises(ValueError):
                bench.parse_case(text)

    def test_a_peer_is_compared_with_the_samples_taken_beside_it(self):
        row = bench.make_row(KEY, "eager", [30, 20, 10], [5, 10, 15], against="patched_graph")
        self.assertEqual((row["us"], row["ours_us"], row["ratio"]), (20, 10, 2))
        self.assertIsNone(bench.make_row(KEY, "eager", reason="late")["ratio"])

    def test_the_nearest_peer_decides(self):
        rows = [bench.make_row(KEY, "patched_graph", [10]), bench.make_row(KEY, "eager", [30], [10]),
                bench.make_row(KEY, "max_autotune", [10.5], [10]), bench.make_row(KEY, "eager_graph", reason="x")]
        result = bench.verdict(rows)
        self.assertEqual((result["peer"], result["holds"]), ("max_autotune", False))
        self.assertTrue(bench.verdict(rows[:2])["holds"])
        self.assertIsNone(bench.verdict(rows[:1]))
        text = bench.table(rows)
        self.assertIn("| a | decode-1 | 10.0 |  | 30.0 | failed |  | 10.5 | 1.050 | 1.10 |", text)

    def test_a_run_goes_on_where_the_last_one_stopped(self):
        rows = [bench.make_row(KEY, "patched_graph", [10]), bench.make_row(KEY, "eager", [30], [10]),
                bench.make_row(KEY, "eager_graph", reason="takes more than 1 s"),
                bench.make_row({**KEY, "problem": "another"}, "max_autotune", [10], [10])]
        self.assertEqual(bench.left_to_run(rows, KEY["problem"], [*bench.OURS, *bench.PEERS]),
                         ["patched_compiled", "eager_graph", "reduce_overhead", "max_autotune"])
        done = [bench.make_row(KEY, way, [10], [10]) for way in (*bench.OURS, *bench.PEERS)]
        self.assertEqual(bench.left_to_run(done, KEY["problem"], [*bench.OURS, *bench.PEERS]), [])

    def test_compiled_models_have_a_row_each(self):
        rows = [bench.make_row(KEY, "max_autotune", [12, 11, 13], [10, 9, 11]),
                bench.make_row(KEY, "max_autotune", reason="the gate is shut")]
        self.assertEqual(compiled_models.table(rows).splitlines()[2:],
                         ["| a | decode-1 | 12.0 | 10.0 | 1.200 | 1.15 |",
                          "| a | decode-1 | failed | failed | failed | 1.15 |"])

    def test_a_budget_ends(self):
        forever, over = bench.Clock(None), bench.Clock(-1)
        self.assertEqual((forever.left(240), forever.is_over()), (240, False))
        self.assertEqual((over.left(240), over.is_over()), (1, True))
        self.assertLessEqual(bench.Clock(1000).left(240), 240)


if __name__ == "__main__":
    unittest.main()
