#!/usr/bin/env python3
"""A short run of a simulated server without a GPU: server_steps_test.py PROGRAM."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

LAYER = ["rmsnorm rows=1..2048 columns=1024 dtype=bf16 residual=add",
         "kv_append batch=1 kv_heads=8 q_len=1..2048 kv_len=1..9216 head_dim=64 dtype=bf16 lengths=kv",
         "kv_append batch=1..64 kv_heads=8 q_len=1 kv_len=1..9216 head_dim=64 dtype=bf16 lengths=kv"]


class ServerStepsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scope = tempfile.TemporaryDirectory(prefix="kernwright-server-")
        cls.folder = pathlib.Path(cls.scope.name)

    @classmethod
    def tearDownClass(cls):
        cls.scope.cleanup()

    def run_on(self, option, problems, *further):
        """Returns the program's status and the row that it wrote."""
        problem_list, out = self.folder / "list.json", self.folder / "out.json"
        problem_list.write_text(json.dumps({"problems": problems}))
        out.unlink(missing_ok=True)
        ran = subprocess.run([PROGRAM, "--cache", self.folder / "cache", "--sku", "h200", option, problem_list,
                              "--json", out, *further], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertTrue(out.exists(), ran.stdout)
        return ran.returncode, json.loads(out.read_text())["rows"][0]

    def test_no_step_compiles_loads_or_waits(self):
        status, row = self.run_on("--layer", LAYER, "--steps", "300")
        self.assertEqual(status, 0, row)
        self.assertEqual((row["steps"], row["families"]), (300, 3))
        self.assertGreater(row["calls"], 600)
        self.assertGreater(row["sizes"], 300)
        self.assertEqual([row[count] for count in ("refused", "looked_up", "compiles", "loads", "waits")], [0] * 5)
        self.assertLessEqual(row["difference_us"]["p50"], row["difference_us"]["max"])
        self.assertGreater(row["difference_load_us"]["p50"], 0, "plans are made for new sizes alone")
        self.assertEqual((row["takes"], row["difference_launch_us"]["max"]), (0, 0), "there is no GPU")

    def test_a_size_beyond_the_families_fails(self):
        status, row = self.run_on("--layer", [LAYER[0].replace("1..2048", "1..100")], "--steps", "300")
        self.assertEqual(status, 1)
        self.assertGreater(row["refused"], 0)
        self.assertGreaterEqual(row["looked_up"], row["refused"])

    def test_recorded_sizes_are_served_by_their_families(self):
        rows = [1, 7, 35, 952, 14918]
        status, row = self.run_on("--recorded", [{"operation": "rmsnorm", "flags": {"dtype": "bf16"},
                                                  "dims": {"rows": rows, "columns": 1024}}])
        self.assertEqual(status, 0, row)
        self.assertEqual((row["steps"], row["families"], row["looked_up"]), (len(rows), 1, 0))


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    sys.exit(unittest.main(argv=sys.argv[:1] + sys.argv[2:]))
