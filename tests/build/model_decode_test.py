#!/usr/bin/env python3
"""The parts of bench/vendor/model_decode.py and decode_models.py that need neither PyTorch nor a GPU:
model_decode_test.py KERNWRIGHT, the program, which says what is a problem."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
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
            row = 2 * sizes.hidden  # of the embedding, one per sequence
            for batch, context in ((1, 511), (16, 0)):
                self.assertEqual(sizes.step_bytes(batch, context), weights + batch * (row + (context + 1) * cache),
                                 name)

    def test_a_layer_has_five_kernels(self):
        for name, kernels in (("qwen3-0.6b", 143), ("llama-3.2-1b", 83), ("qwen3-8b", 183)):
            sizes = models.MODELS[name]
            self.assertEqual(sum(map(sizes.count, bench.step_problems(sizes, 1, 576))), kernels, name)
            self.assertEqual(bench.step_problems(sizes, 1, 576).keys(), sizes.kernel_bytes(1, 512).keys())

    def test_weights_in_int4_have_four_bits_and_a_scale_of_each_group(self):
        sizes = models.MODELS["qwen3-8b"]
        of_layers = sum(rows * columns for rows, columns in sizes.matrices().values())
        saved = sizes.layers * (2 * of_layers - of_layers // 2 - 2 * of_layers // 128)
        self.assertEqual(sizes.step_bytes(1, 512) - sizes.step_bytes(1, 512, "int4"), saved)
        self.assertEqual(bench.step_problems(sizes, 1, 576, "int4").keys(), sizes.kernel_bytes(1, 512, "int4").keys())
        self.assertEqual(sum(map(sizes.count, bench.step_problems(sizes, 1, 576, "int4"))), 183 + 72)

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
    def test_what_a_step_asks_for_is_in_the_models_worklist(self):
        configs = pathlib.Path(__file__).resolve().parents[2] / "src/examples/decode/configs"
        for name in ("qwen3-0.6b", "llama-3.2-1b", "qwen3-8b"):
            written = subprocess.run([PROGRAM, "worklist", configs / f"{name}.json", "--tokens", "1,16",
                                      "--contexts", "576"], stdout=subprocess.PIPE, text=True, check=True).stdout
            listed = json.loads(written)["problems"]
            for batch in (1, 16):
                for problem in bench.step_problems(models.MODELS[name], batch, 576).values():
                    self.assertIn(problem, listed)


    def test_products_with_weights_in_int4_are_problems(self):
        wanted = [problem for name in models.MODELS for batch in (1, 16)
                  for problem in bench.step_problems(models.MODELS[name], batch, 576, "int4").values()]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "problems.json"
            file.write_text(json.dumps({"problems": wanted}))
            run = subprocess.run([PROGRAM, "sweep", "--dry-run", "--json", "--sku", "h200", "--cache", folder, file],
                                 stdout=subprocess.PIPE, text=True, check=True)
        listed = {frozenset(each["problem"].split()) for each in json.loads(run.stdout)["plan"]}
        self.assertEqual(listed, {frozenset(problem.split()) for problem in wanted})


class OptionsTest(unittest.TestCase):
    def test_a_context_may_say_its_steps(self):
        self.assertEqual([bench.parse_context(text) for text in ("512", "32+128")], [(512, 64), (32, 128)])

    def test_peers_are_sets_or_names(self):
        self.assertEqual(len(bench.peer_names("all")), 3)
        self.assertEqual(bench.peer_names("lean"), ("lean_graph", "lean_compiled"))
        self.assertEqual(bench.peer_names("none"), ())
        self.assertEqual(bench.peer_names("lean_compiled"), ("lean_compiled",))
        with self.assertRaisesRegex(ValueError, "no peer vllm"):
            bench.peer_names("vllm")


LONG = 600  # seconds that no test waits, however busy the machine is


class TimeTest(unittest.TestCase):
    def test_what_takes_too_long_is_ended_though_it_catches_that(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(bench.OutOfTime, "more than 0 s"):
            with bench.time_limit(0.01):
                try:
                    time.sleep(LONG)
                except bench.OutOfTime:
                    time.sleep(LONG)
        self.assertLess(time.monotonic() - begun, LONG)

    def test_what_is_in_time_is_left_alone(self):
        with bench.time_limit(0.02):
            pass
        time.sleep(0.05)


class GateTest(unittest.TestCase):
    def test_what_is_off_is_named(self):
        noise = {"logits": 1e-2, "k": 2e-3}
        self.assertEqual(bench.verdict({"logits": 1.1e-2, "k": 2e-3}, noise), [])
        self.assertEqual(bench.verdict({"logits": 1.3e-2, "k": math.nan}, noise), ["logits", "k"])

    def test_sequences_of_a_gate_are_alike_and_unlike(self):
        self.assertEqual(bench.gate_lengths(1, 512), {"alike": [512]})
        cases = bench.gate_lengths(16, 512)
        self.assertEqual(cases["alike"], [512] * 16)
        self.assertEqual(cases["unlike"][:2], [512, 1])
        self.assertTrue(all(1 <= length <= 512 for length in cases["unlike"]))
        self.assertGreater(len(set(cases["unlike"])), 8)

    def test_sequences_of_one_length_are_taken_together(self):
        self.assertEqual(bench.groups([7, 1, 7, 7, 7, 7]), [(1, [1]), (7, [0, 2, 3, 4]), (7, [5])])

    def test_a_row_has_the_median_and_its_share_of_the_floor(self):
        key = {"problem": "p", "batch": 2, "floor_us": 50}
        row = bench.make_row(key, "abc", {"kernels": 9}, [90, 100, 130], "lean", [300, 200, 100])
        self.assertEqual((row["ours_us"], row["peer"], row["peer_us"], row["ratio"]), (100, "lean", 200, 2))
        self.assertEqual((row["share_of_floor"], row["tokens_per_second"], row["kernels"]), (0.5, 20000, 9))
        row = bench.make_row(key, "abc", {}, [100])
        self.assertEqual((row["peer"], row["peer_us"], row["ratio"]), (None, None, None))

    def test_rows_are_written_at_once_and_become_tables(self):
        key = {"problem": "p", "model": "m", "batch": 1, "context": 512, "steps": 64, "floor_us": 50}
        details = {"gate": {"alike": {"errors": {"k": 1}, "errors_of_bf16": {"k": 2}}}, "kernels": 3,
                   "parts": {"o": {"kernel": "direct X=1", "times": 2, "us": 30, "floor_us": 20}}}
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            kept = bench.Rows(file, {"rows": []})
            kept.keep(bench.make_row(key, "abc", details, [100]))
            kept.keep(bench.make_row(key, "abc", {}, [100], "lean_graph", [150]))
            kept.keep(bench.make_row(key, "abc", {"reason": "no"}, [100], "lean_compiled"))
            self.assertEqual([row["peer"] for row in json.loads(file.read_text())["rows"]],
                             [None, "lean_graph", "lean_compiled"])
        steps, parts = bench.tables(kept.new).split("\n\n")
        self.assertEqual(steps.splitlines()[2],
                         "| m | 1 | 512 | 64 | 3 | 100.0 | 10000 | 50.0 | 50.0 % | 150 (1.50) | failed |  | 0.50 |")
        self.assertEqual(parts.splitlines()[2:], ["| m | 1 | 512 | o | 2 | 30.00 | 20.00 | 60.0 | direct X=1 |",
                                                  "| m | 1 | 512 | all | 3 |  |  | 60.0 |  |"])


if __name__ == "__main__":
    unittest.main()
