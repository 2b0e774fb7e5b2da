#!/usr/bin/env python3
"""The worklist of data wheels, src/python/data/make_worklist.py: make_worklist_test.py KERNWRIGHT, the program."""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)


class MakeWorklistTest(unittest.TestCase):
    def test_every_model_is_listed_with_the_products_of_its_format(self):
        written = subprocess.run([sys.executable, "-B", ROOT / "src/python/data/make_worklist.py", PROGRAM],
                                 stdout=subprocess.PIPE, text=True, check=True).stdout
        problems = json.loads(written)["problems"]
        self.assertEqual(len(problems), len(set(problems)))
        for product in ("matmul m=1..8192 n=6144 k=4096 dtype=bf16",
                        "quantized_matmul m=1..8192 n=6144 k=4096 group=128 n_kv=1024 dtype=bf16 split=qkv",
                        "grouped_quantized_matmul experts=32 rows=4..32768 n=2880 k=2880 group=32 dtype=bf16 scale=uint8"
                        " weights=mxfp4 bias=expert"):
            self.assertIn(product, problems)
        for config in (ROOT / "src/python/data/configs").glob("*.json"):
            hidden = json.loads(config.read_text())["hidden_size"]
            self.assertTrue(any(f"columns={hidden} " in problem for problem in problems), config)


if __name__ == "__main__":
    unittest.main()
