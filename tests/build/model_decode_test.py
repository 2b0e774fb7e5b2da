#!/usr/bin/env python3
"""The parts of bench/vendor/model_decode.py and decode_models.py that need neither PyTorch nor a GPU:
model_decode_test.py KERNWRIGHT, the program, which says what is a problem."""

import math
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import decode_models as models  # noqa: E402
import model_decode as bench  # noqa: E402

PROGRAM = sys.argv.pop(1)


class SizesTest(unittest.TestCase):
    def test_a_step_reads_every_weight_once(self):
        for name, weights, cache in (("qwen3-0.6b", 1192099840, 114688), ("llama-3.2-1b", 2471628800, 32768),
                                     ("qwen3-8b", 15136811008, 147456), ("llama-3.1-8b", 15009849344, 131072)):
            sizes = models.MODELS[name]
            rows = 2 * sizes.hidden  # of the embedding, one per sequence
            self.assertEqual(sizes.weight_bytes(1), weights + rows, name)
            self.assertEqual(sizes.weight_bytes(16), weights + 16 * rows, name)
            self.assertEqual(sizes.cache_bytes(2, 511), 2 * 512 * cache, name)

    def test_slow_pairs_are_slowed_by_the_factor_of_llama3(self):
        sizes = models.MODELS["llama-3.2-1b"]
        turns = models.frequencies(sizes)
        self.assertEqual(len(turns), 32)
        self.assertEqual(turns[0], 1)
        plain = [5e5 ** (-i / 32) for i in range(32)]
        for turn, unscaled in zip(turns, plain):
            wave = 2 * math.pi / unscaled  # in positions
            if wave < 8192 / 4:
                self.assertEqual(turn, unscaled)
            elif wave > 8192:
                self.assertAlmostEqual(turn * 32 / unscaled, 1)
            else:
                self.assertTrue(unscaled / 32 < turn < unscaled)

    def test_qwen3_turns_by_its_base_alone(self):
        self.assertEqual(models.frequencies(models.MODELS["qwen3-8b"])[32], 1e6 ** -0.5)


class ProblemsTest(unittest.TestCase):
    def test_what_a_step_asks_for_is_a_problem(self):
        for name in ("qwen3-0.6b", "llama-3.2-1b"):
            for batch in (1, 16):
                for problem in bench.step_problems(models.MODELS[name], batch, 576).values():
                    asked = subprocess.run([PROGRAM, "show", "--sku", "h100", *problem.split()],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    self.assertIn("no record", asked.stderr, problem)


class GateTest(unittest.TestCase):
    def test_what_is_off_is_named(self):
        noise = {"logits": 1e-2, "k": 2e-3}
        self.assertEqual(bench.verdict({"logits": 1.1e-2, "k": 2e-3}, noise), [])
        self.assertEqual(bench.verdict({"logits": 1.3e-2, "k": math.nan}, noise), ["logits", "k"])

    def test_a_row_has_the_median_and_its_share_of_the_floor(self):
        key = {"problem": "p", "batch": 2, "floor_us": 50}
        row, = bench.make_rows(key, {"ours": [90, 100, 130], "lean": [300, 200, 100]}, {"kernels": 9}, "abc")
        self.assertEqual((row["ours_us"], row["peer"], row["peer_us"], row["ratio"]), (100, "lean", 200, 2))
        self.assertEqual((row["share_of_floor"], row["tokens_per_second"], row["kernels"]), (0.5, 20000, 9))
        row, = bench.make_rows(key, {"ours": [100]}, {}, "abc")
        self.assertIsNone(row["peer"])


if __name__ == "__main__":
    unittest.main()
