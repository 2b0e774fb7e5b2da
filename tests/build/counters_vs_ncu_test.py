#!/usr/bin/env python3
"""The parts of bench/vendor/counters_vs_ncu.py that need neither ncu nor a GPU."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/vendor"))
sys.dont_write_bytecode = True
import counters_vs_ncu as bench  # noqa: E402

TIME = "gpu__time_duration.sum"
HITS = "lts__t_sector_hit_rate.pct"


def counted(*kernels):
    """A set of counters, of the values of each kernel: name -> (value, unit)."""
    return {"kernels": [{"kernel": f"k{number}", "values": {name: {"value": value, "unit": unit}
                                                            for name, (value, unit) in values.items()}}
                        for number, values in enumerate(kernels)]}


class LaunchesTest(unittest.TestCase):
    HEAD = ['"ID","Kernel Name","Grid Size","gpu__time_duration.sum"', '"","","","ns"']

    @staticmethod
    def line(number, kernel, grid="(1, 1, 1)"):
        return f'"{number}","{kernel}(int, float)","{grid}","1,00{number}"'

    def test_every_launch_has_all_kernels_in_their_order(self):
        # Two problems with the same kernel, and one whose launch has two.
        kernels = ["a", "a", "a", "a", "b", "c", "b", "c"]
        lines = [self.line(number, kernel) for number, kernel in enumerate(kernels)]
        text = "==PROF== Connected\n" + "\n".join(self.HEAD + lines) + "\n==PROF== Disconnected\n"
        first, second = bench.launches(text, 2)
        self.assertEqual(first.splitlines(), self.HEAD + [lines[at] for at in (0, 2, 4, 5)])
        self.assertEqual(second.splitlines(), self.HEAD + [lines[at] for at in (1, 3, 6, 7)])

    def test_grids_tell_kernels_apart(self):
        lines = [self.line(0, "a"), self.line(1, "a", "(2, 1, 1)"), self.line(2, "a"), self.line(3, "a", "(2, 1, 1)")]
        first, second = bench.launches("\n".join(self.HEAD + lines), 2)
        self.assertEqual(first.splitlines()[2:], lines[:2])
        self.assertEqual(second.splitlines()[2:], lines[2:])


class AgreementTest(unittest.TestCase):
    def test_the_first_that_holds_is_named(self):
        self.assertEqual(bench.agreement([1029], [1000], "byte"), "3 %")
        self.assertEqual(bench.agreement([65000], [0], "byte"), "least")
        self.assertEqual(bench.agreement([70000], [0], "byte"), "none")
        self.assertEqual(bench.agreement([0.2], [0.6], "%"), "least")
        self.assertEqual(bench.agreement([70], [66, 72], "%"), "3 %")
        self.assertEqual(bench.agreement([70], [62, 70], "%"), "noise")
        self.assertEqual(bench.agreement([70], [66, 67], "%"), "none")

    def test_noise_of_ours_excuses_nothing(self):
        self.assertEqual(bench.agreement([60, 80, 80], [66, 66], "%"), "none")

    def test_noise_is_a_share_of_the_mean(self):
        self.assertAlmostEqual(bench.noise([90, 110, 100]), 0.2)
        self.assertIsNone(bench.noise([0, 0]))


class ComparedTest(unittest.TestCase):
    def test_a_row_for_each_counter_of_each_kernel(self):
        ours = [counted({TIME: (4000, "ns"), HITS: (70, "%")}, {TIME: (100, "ns")}),
                counted({TIME: (4040, "ns"), HITS: (None, "%")}, {TIME: (100, "ns")})]
        theirs = [counted({TIME: (4000, "ns")}, {TIME: (500, "ns")})]
        rows = list(bench.compared(ours, theirs))
        self.assertEqual([(row["kernel"], row["counter"]) for row in rows], [("k0", TIME), ("k0", HITS), ("k1", TIME)])
        self.assertEqual(rows[0]["ours"], [4000, 4040])
        self.assertEqual(rows[0]["ncu"], [4000])
        self.assertAlmostEqual(rows[0]["difference"], 0.005)
        self.assertEqual(rows[0]["agrees"], "3 %")
        self.assertNotIn("agrees", rows[1])
        self.assertEqual(rows[2]["agrees"], "none")

    def test_zero_against_something_has_no_share(self):
        rows = list(bench.compared([counted({"x": (5e6, "byte")})], [counted({"x": (0, "byte")})]))
        self.assertIsNone(rows[0]["difference"])
        self.assertEqual(rows[0]["agrees"], "none")

    def test_the_table_counts_each_kind_apart_and_names_the_rest(self):
        rows = [{"problem": f"p{number}", **row} for number, values in enumerate([(100, 101), (20, 20.3), (70, 75)])
                for row in bench.compared([counted({HITS: (values[0], "%")})], [counted({HITS: (values[1], "%")})])]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            bench.table(rows)
        lines = out.getvalue().splitlines()
        self.assertEqual(lines[0].split(), ["counter", "3", "%", "least", "noise", "none", "of", "apart", "ours", "ncu"])
        self.assertEqual(lines[1].split(), [HITS, "2", "0", "0", "1", "3", "1.5", "%", "0.0", "%", "0.0", "%"])
        self.assertEqual(lines[-1].split(), ["p2", HITS, "70", "75"])
        self.assertEqual(sum("p0" in line or "p1" in line for line in lines), 0)


class MetricsTest(unittest.TestCase):
    def test_the_rate_of_hits_is_asked_for_as_its_parts(self):
        self.assertEqual(bench.metrics_of([TIME, HITS]),
                         [TIME, "lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"])


if __name__ == "__main__":
    unittest.main()
