#!/usr/bin/env python3
"""The parts of bench/engines/compare_vllm.py that need neither vLLM nor a GPU."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/engines"))
sys.dont_write_bytecode = True
import compare_vllm as bench  # noqa: E402


class CompareVllmTest(unittest.TestCase):
    def test_a_step_ends_with_the_last_kernel_that_runs_once_in_each(self):
        """The host waits before the first two steps alone; one kernel overlaps another."""
        kernels = [(0, 4, "embed"), (4, 9, "layer"), (9, 12, "layer"), (12, 13, "sample"),
                   (200, 203, "copy"), (300, 304, "embed"), (303, 310, "layer"), (310, 320, "layer"), (320, 321, "sample"),
                   (321, 323, "copy"), (323, 327, "embed"), (327, 340, "layer"), (340, 350, "layer"), (350, 352, "sample")]
        self.assertEqual(bench.steps_of(reversed(kernels), 2), [21, 31])
        self.assertEqual(bench.steps_of(kernels, 1), [31])
        with self.assertRaisesRegex(LookupError, "once in each of 30 steps"):
            bench.steps_of(kernels, 30)

    def test_kernels_are_summed_by_name(self):
        kernels = [(0, 4, "a"), (4, 5, "b"), (5, 9, "a"), (9, 10, "b")]
        self.assertEqual(bench.by_kernel(kernels, 2), [["a", 4.0, 1.0], ["b", 1.0, 1.0]])

    def test_a_kernel_that_starts_early_takes_what_is_left_after_those_before_it(self):
        kernels = [(0, 10, "a"), (2, 14, "b"), (3, 12, "c"), (20, 21, "c")]
        self.assertEqual(bench.by_kernel(kernels, 1), [["a", 10.0, 1.0], ["b", 4.0, 1.0], ["c", 1.0, 2.0]])

    def test_texts_are_compared_up_to_the_first_other_token(self):
        ours = [[(1, {"1": -1.0, "2": -2.0}), (3, {"3": -1.0}), (4, {"4": -9.0})]]
        theirs = [[(1, {"1": -1.5, "5": -2.0}), (2, {"3": -2.0}), (4, {"4": -1.0})]]
        self.assertEqual(bench.difference(ours, theirs),
                         {"mean": 0.75, "compared": 2, "steps": 2, "same_token": 1})

    def test_runs_that_did_not_end_are_not_summed_up(self):
        runs = [{"arm": "vllm", "complete": True, "values": {"span_us_1": us}} for us in (5.0, 1.0, 2.0)]
        runs.append({"arm": "vllm", "values": {"span_us_1": 100.0}})
        self.assertEqual(bench.summary(runs), {"vllm": {"span_us_1": {"median": 2.0, "least": 1.0, "most": 5.0}}})

    def test_arms_differ_in_what_their_names_say(self):
        plain, fused, unfused, exact = (bench.settings(arm, "model") for arm in
                                        ("vllm", "kernwright", "unfused", "fp32"))
        options = {"custom_ops": bench.OPERATORS, "inductor_passes": bench.PASSES}
        self.assertEqual(fused, {**plain, "attention_config": {"backend": "CUSTOM"}, "compilation_config": options})
        del fused["compilation_config"]["inductor_passes"]
        self.assertEqual(fused, unfused)
        self.assertEqual((exact["dtype"], plain["dtype"]), ("float32", "bfloat16"))
        self.assertEqual(bench.settings("tuned", "model"), bench.settings("kernwright", "model"))
        self.assertEqual(bench.settings("linear", "model"), plain)

    def test_a_format_is_added_to_a_models_configuration(self):
        with tempfile.TemporaryDirectory() as work:
            model = pathlib.Path(work) / "m"
            model.mkdir()
            (model / "config.json").write_text('{"hidden_size": 64}')
            self.assertEqual(bench.quantized(str(model), "bf16", pathlib.Path(work)), str(model))
            found = json.loads((pathlib.Path(bench.quantized(
                str(model), "fp8_block", pathlib.Path(work))) / "config.json").read_text())
        self.assertEqual(found, {"hidden_size": 64, "quantization_config": bench.FORMATS["fp8_block"]})

    def test_a_models_own_format_is_kept_or_taken_away(self):
        config = {"hidden_size": 64, "quantization_config": bench.FORMATS["mxfp4"]}
        with tempfile.TemporaryDirectory() as work:
            model = pathlib.Path(work) / "m"
            model.mkdir()
            (model / "config.json").write_text(json.dumps(config))
            self.assertEqual(bench.quantized(str(model), "mxfp4", pathlib.Path(work)), str(model))
            found = json.loads((pathlib.Path(bench.quantized(
                str(model), "bf16", pathlib.Path(work))) / "config.json").read_text())
        self.assertEqual(found, {"hidden_size": 64})


if __name__ == "__main__":
    unittest.main()
