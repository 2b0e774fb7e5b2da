#!/usr/bin/env python3
"""The parts of bench/vendor/quantized_*.py that need no GPU: quantized_vs_peers_test.py KERNWRIGHT, the
program, which says what is a problem."""

import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import attention_vs_peers  # noqa: E402
import quantized_peers as peers  # noqa: E402
import quantized_vs_peers as bench  # noqa: E402
import rows_vs_pytorch as rows  # noqa: E402

PROGRAM = sys.argv.pop(1)
EVERY_WEIGHTS = (peers.WEIGHTS, "group=128 dtype=fp16 zero=code", "group=64 dtype=bf16 weights=int8", "dtype=bf16",
                 "group=32 scale=uint8 dtype=bf16 weights=mxfp4")


def shape(more="group=128 dtype=bf16", m=16, n=256, k=512):
    return peers.Shape(f"quantized_matmul m={m} n={n} k={k} {more}")


class ShapesTest(unittest.TestCase):
    def test_all_are_problems_and_so_are_those_of_their_weights(self):
        sizes = (*peers.SHAPES[:2], *peers.random_sizes(2, 5))
        for weights in EVERY_WEIGHTS:
            for problem in peers.listed(sizes, peers.TOKENS[1:3], weights):
                one = peers.Shape(problem)
                scale = f"scale={one.scale}"
                for text in (problem, one.of_weights("pack_weights", scale),
                             one.of_weights("dequantize_weights", f"{scale} dtype={one.dtype}")):
                    self.assertIsNone(attention_vs_peers.refusal(PROGRAM, text), text)

    def test_random_sizes_are_others_and_the_same_for_a_seed(self):
        sizes = peers.random_sizes(40, 3)
        self.assertEqual(sizes, peers.random_sizes(40, 3))
        self.assertNotEqual(sizes, peers.random_sizes(40, 4))
        self.assertEqual(len(set(sizes) - set(peers.SHAPES)), 40)
        for side in sum(sizes, ()):
            self.assertTrue(side % 128 == 0 and 1024 <= side <= 32768, side)

    def test_what_the_bench_does_not_draw_is_refused(self):
        with self.assertRaisesRegex(ValueError, "does not know bias, layout"):
            shape("layout=rows dtype=bf16 bias=column")
        with self.assertRaisesRegex(ValueError, "does not know matmul"):
            peers.Shape("matmul m=1 n=8 k=8 dtype=bf16")

    def test_tensors_of_every_dtype_of_these_operations_have_a_size(self):
        for name in ("quantized_matmul", "pack_weights", "dequantize_weights"):
            listed = subprocess.run([PROGRAM, "operations", name, "--json"], stdout=subprocess.PIPE, check=True)
            operation = json.loads(listed.stdout)
            values = {dtype["name"]: dtype["values"] for dtype in operation["dtypes"]}
            for tensor in operation["tensors"]:
                for dtype in values.get(tensor["dtype"], [tensor["dtype"]]):
                    self.assertIn(dtype, rows.BYTES, f"{name}: {tensor['name']}")

    def test_lines_count_weights_scales_and_both_sides(self):
        one = shape("group=128 dtype=bf16 zero=code")
        self.assertEqual(one.bytes(), 256 * 512 // 2 + 256 * 4 * 3 + 16 * (512 + 256) * 2)
        self.assertEqual(shape("group=32 scale=uint8 dtype=bf16 weights=mxfp4").bytes(),
                         256 * 512 // 2 + 256 * 16 + 16 * (512 + 256) * 2)
        self.assertAlmostEqual(shape(m=1, n=6144, k=4096).line_us(), 5.3, places=1)
        self.assertAlmostEqual(shape(m=4096, n=6144, k=4096).line_us(), 297, places=0)

    def test_types_of_weights_are_the_numbers_of_vllm(self):
        self.assertEqual([peers.weight_type(shape(more)) for more in (
            "dtype=bf16", "dtype=bf16 zero=code", "dtype=bf16 weights=int8", "dtype=bf16 weights=mxfp4")],
            [1125899907892224, 1125899906843648, 1125899923621888, 562949953487106])
        self.assertEqual((peers.scalar_type(8, 7, True), peers.scalar_type(5, 10, True)),
                         (1125899906909960, 1125899906910725))


class RowsTest(unittest.TestCase):
    RESULT = {"samples": {"ours": [10.0, 11.0, 12.0], "marlin": [22.0], "machete": [5.0]},
              "errors": {"ours": (2e-3, 1e-2), "marlin": (1.6e-3, 1e-2), "machete": (0.5, 3.0)},
              "reasons": {"humming": "no module", "ours": "one of two ways"},
              "notes": {"ours": "baked", "marlin": "", "machete": "plain"},
              "configuration": "quantized_matmul/stream CHUNK=64", "match": "exact"}

    def rows(self, **changed):
        return bench.make_rows(shape(), {**self.RESULT, **changed}, "abc")

    def test_every_peer_has_a_row_timed_or_not(self):
        made = {row["peer"]: row for row in self.rows()}
        self.assertEqual(list(made), ["marlin", "machete", "humming"])
        marlin = made["marlin"]
        self.assertEqual((marlin["ours_us"], marlin["peer_us"], marlin["ratio"], marlin["bar"], marlin["note"]),
                         (11.0, 22.0, 2.0, 1.3, ""))
        self.assertEqual((marlin["error"], marlin["peer_error"], marlin["error_ratio"], marlin["wrong"]),
                         (2e-3, 1.6e-3, 1.25, False))
        self.assertEqual(made["machete"]["note"], "wrong: plain")
        self.assertEqual((made["humming"]["peer_us"], made["humming"]["ratio"], made["humming"]["note"]),
                         (None, None, "no module"))

    def test_a_wrong_peer_is_no_bar(self):
        line = bench.table_line(self.rows())
        self.assertIn("11.00 us, ", line)
        self.assertIn("2.00 of marlin (bar 1.30); marlin 22.0; error 2.00e-03 (1.25 of the least); exact", line)
        self.assertIn("; no humming: no module; machete is wrong: 5.0e-01", line)
        only = bench.table_line(self.rows(samples={"ours": [1.0], "machete": [5.0]}))
        self.assertIn("no peer", only)

    def test_an_error_above_the_tolerance_is_wrong(self):
        for error, wrong in (((2e-2, 2e-2), True), ((2e-3, 2e-1), True), ((math.nan, 1e-2), True),
                             ((2e-3, math.nan), True), ((2e-3, 2e-2), False)):
            made = self.rows(errors={**self.RESULT["errors"], "ours": error})
            self.assertEqual(made[0]["wrong"], wrong, error)
            self.assertEqual(" WRONG" in bench.table_line(made), wrong, error)


class RunTest(unittest.TestCase):
    """A run with measurements that are made up."""

    def run_bench(self, path, measure, *more):
        properties = types.SimpleNamespace(name="GPU", uuid="1", multi_processor_count=132)
        torch = types.SimpleNamespace(
            __version__="2", version=types.SimpleNamespace(cuda="13"),
            cuda=types.SimpleNamespace(is_available=lambda: True, get_device_properties=lambda _: properties,
                                       empty_cache=lambda: None, synchronize=lambda: None))
        argv = ["quantized_vs_peers.py", "--json", str(path), "--shapes", "6144x4096", "--tokens", "1,16", *more]
        with mock.patch.dict(sys.modules, {"torch": torch, "kernwright": types.SimpleNamespace()}), \
                mock.patch.dict("os.environ", {"KERNWRIGHT_PEERS": ""}), \
                mock.patch.multiple(bench.rows, Library=lambda cache: None, package_commit=lambda: "abc"), \
                mock.patch.object(bench, "measure", measure), mock.patch.object(sys, "argv", argv), \
                mock.patch.object(bench.shutil, "which", lambda _: None), \
                mock.patch("sys.stdout", new_callable=io.StringIO) as out:
            status = bench.main()
        return status, json.loads(path.read_text()) if path.exists() else None, out.getvalue()

    def test_rows_and_samples_are_written_and_a_run_goes_on(self):
        asked = []

        def measure(torch, library, problem, seconds, missing, crashed, watch):
            asked.append(problem)
            self.assertEqual(missing, {"marlin": "no folder of peers", "machete": "no folder of peers"})
            if "m=16" in problem and len(asked) == 2:
                raise RuntimeError("made up")
            return peers.Shape(problem), RowsTest.RESULT

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            status, document, said = self.run_bench(path, measure)
            self.assertEqual(status, 1)
            self.assertIn("everything: RuntimeError: made up", said)
            self.assertEqual({row["problem"] for row in document["rows"]}, {asked[0]})
            status, document, _ = self.run_bench(path, measure)
            self.assertEqual((status, len(asked)), (0, 3))
            self.assertEqual([row["peer"] for row in document["rows"]], ["marlin", "machete", "humming"] * 2)
            self.assertEqual(document["samples"], dict.fromkeys(asked[:2], RowsTest.RESULT["samples"]))
            self.assertEqual(self.run_bench(path, measure)[0], 0)
            self.assertEqual(len(asked), 3)

    def test_a_way_that_hangs_is_given_up_and_no_other(self):
        given_up = threading.Semaphore(0)
        labels = []

        def give_up(label):
            labels.append(label)
            given_up.release()

        watch = bench.Watch(give_up, patience=0.2)
        watch.begin("marlin")
        watch.begin("machete")
        self.assertTrue(given_up.acquire(timeout=60))
        watch.begin("humming")
        watch.end()
        self.assertFalse(given_up.acquire(timeout=0.5))
        self.assertEqual(labels, ["machete"])

    def test_nothing_is_begun_after_the_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            _, document, said = self.run_bench(path, None, "--budget", "-1")
            self.assertIsNone(document)
            self.assertIn("the budget is spent", said)


class WeightsTest(unittest.TestCase):
    """On the CPU, against what is written out."""

    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        self.torch = torch
        torch.manual_seed(1)
        peers.DEVICE = "cpu"

    def test_numbers_of_codes(self):
        for more in EVERY_WEIGHTS:
            one = shape(more, m=2, n=8, k=128)
            t = peers.draw(self.torch, one)
            w = peers.dequantized(self.torch, one, t)
            for n in range(8):
                for k in (0, 1, 31, 32, 63, 64, 127):
                    code, g = t["codes"][n, k].item(), k // one.group
                    factor = t["scales"][n, g].item()
                    if one.weights == "mxfp4":
                        value = peers.E2M1[code] * 2.0 ** (factor - 127)
                    else:
                        zero = t["zeros"][n, g].item() if one.has_zero else 128 if one.bits == 8 else 8
                        value = (code - zero) * factor
                    self.assertEqual(w[n, k].item(), value, more)

    def test_words_have_eight_or_four_codes_the_first_in_the_lowest_bits(self):
        for more in EVERY_WEIGHTS:
            one = shape(more, n=8, k=64)
            codes = peers.draw(self.torch, one)["codes"]
            words, count = peers.row_words(self.torch, one, codes), 32 // one.bits
            self.assertEqual(tuple(words.shape), (8, 64 // count))
            for k in range(64):
                part = words[:, k // count].long() >> one.bits * (k % count) & (1 << one.bits) - 1
                self.assertTrue(self.torch.equal(part, codes[:, k].long()), more)

    def test_factors_of_marlin_are_in_the_order_of_its_threads(self):
        one = shape("group=128 dtype=bf16 zero=code", n=128, k=256)
        t = peers.draw(self.torch, one)
        scales, zeros = peers.marlin_factors(one, t["scales"]), peers.marlin_zeros(self.torch, one, t["zeros"])
        row = shape("dtype=bf16", n=128, k=256)
        drawn = peers.draw(self.torch, row)["scales"]
        whole = peers.marlin_factors(row, drawn)
        for column in range(128):
            block, i = column // 64 * 64, column % 64
            source = block + i // 8 + 8 * (i % 8)
            self.assertTrue(self.torch.equal(scales[:, column], t["scales"][source]))
            place = [0, 2, 4, 6, 1, 3, 5, 7].index(i % 8)
            part = zeros[:, column // 8].long() >> 4 * place & 15
            self.assertTrue(self.torch.equal(part, t["zeros"][source].long()))
            source = column // 32 * 32 + 2 * (column % 32 // 8) + [0, 1, 8, 9, 16, 17, 24, 25][column % 8]
            self.assertEqual(whole[0, column], drawn[source, 0])

    def test_errors_are_over_the_size_of_what_is_expected(self):
        expected = self.torch.tensor([[3.0, -4.0]], dtype=self.torch.double)
        mean, worst = bench.errors_of(self.torch, expected + self.torch.tensor([0.5, 0]), expected)
        self.assertAlmostEqual(mean, 0.1)
        self.assertAlmostEqual(worst, 0.5 / math.sqrt(12.5))


if __name__ == "__main__":
    unittest.main()
