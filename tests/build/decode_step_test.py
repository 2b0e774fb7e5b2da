#!/usr/bin/env python3
"""The parts of bench/vendor/decode_step.py that need neither PyTorch nor a GPU."""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import decode_step as bench  # noqa: E402


class StepsTest(unittest.TestCase):
    def test_the_weights_take_what_the_anchors_say(self):
        for hidden, us in ((1024, 203), (4096, 2808)):
            per_layer = sum(2 * math.prod(shape) for shape in bench.weight_shapes(hidden).values())
            self.assertAlmostEqual(bench.LAYERS * per_layer / 4.35e6, us, delta=0.01 * us)

    def test_products_read_what_the_kernel_ahead_wrote_and_weights_of_their_size(self):
        for hidden in bench.MODELS:
            for batch in (1, 16):
                shapes = bench.weight_shapes(hidden)
                columns = {**bench.buffer_columns(hidden), "y": hidden}
                written = {"x"}
                for problem, arguments in bench.layer_steps(hidden, batch):
                    *read, result = arguments
                    self.assertLessEqual({name for name in read if not name.startswith("w:")}, written)
                    written.add(result)
                    name, _, values = problem.partition(" ")
                    self.assertEqual(name, "matmul")
                    sizes = {k: v for k, v in (word.split("=") for word in values.split())}
                    n, k = int(sizes["n"]), int(sizes["k"])
                    rows = 2 * n if "gate" in sizes else n
                    self.assertEqual([rows, k], shapes[arguments[1][2:]])
                    self.assertGreaterEqual(columns[arguments[0]], k)
                    if batch > 1:
                        self.assertEqual(columns[arguments[0]], int(sizes.get("lda", k)))
                    self.assertEqual(columns[result], n)
                    self.assertEqual(["norm" in sizes, "residual" in sizes],
                                     [arguments[2].startswith("w:norm"), len(arguments) == 4 and
                                      arguments[2] in written])
                    if "norm" in sizes:
                        self.assertEqual(shapes[arguments[2][2:]], [k])
                self.assertIn("y", written)


class RowsTest(unittest.TestCase):
    def test_each_peer_has_a_row_against_the_chosen_path(self):
        samples = {"stream": [9.0, 10.0], "graph": [4.0, 5.0, 6.0], "torch_eager": [10.0],
                   "torch_compile": [8.0]}
        eager, compiled = bench.make_rows("step", samples, "graph", {"kernels": 3}, "abc")
        self.assertEqual((eager["peer"], eager["ours_us"], eager["ours_p95_us"], eager["ratio"]),
                         ("torch_eager", 5.0, 6.0, 2.0))
        self.assertEqual(compiled["paths"]["stream"], {"p50_us": 10.0, "p95_us": 10.0})
        self.assertEqual(set(compiled["paths"]), {"stream", "graph"})


if __name__ == "__main__":
    unittest.main()
