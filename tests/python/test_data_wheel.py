#!/usr/bin/env python3
"""Builds the wheel of a tiny bundle and finds it as an installed package. Needs the tool and NVRTC."""

import importlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import kernwright as kw
from kernwright import _data

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.path.join(os.path.dirname(kw.__file__), "bin", "kernwright")


class DataWheelTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cache = cls.folder / "cache"
        tuned = cls.tool("tune", "vector_add", "n=4096", "dtype=bf16", "--sku", "h100_sxm", "--cache",
                         cache)
        if tuned.returncode != 0:
            raise unittest.SkipTest(f"nothing can be compiled: {tuned.stderr}")
        cls.tool("cache", "keygen", cls.folder / "test", check=True)
        cls.bundle = cls.folder / "h100.tar.zst"
        cls.tool("cache", "export", cls.bundle, "--key", cls.folder / "test.key", "--serial", "7",
                 "--cache", cache, check=True)

    @staticmethod
    def tool(*words, check=False):
        return subprocess.run([TOOL, *map(str, words)], check=check, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)

    def build(self, *words, name="h100", bundle=None):
        return subprocess.run(
            [sys.executable, ROOT / "src/python/data/build_wheel.py", "--name", name, "--bundle",
             bundle or self.bundle, "--tool", TOOL, "--out", self.folder / "dist", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_it_is_found_as_a_layer(self):
        results = self.folder / "results.json"
        built = self.build("--trusted-keys", self.folder / "test.pub", "--json", results)
        self.assertEqual(built.returncode, 0, built.stderr)
        row, = json.loads(results.read_text())["rows"]
        self.assertEqual(row["problem"], "vector_add n=4096 dtype=bf16")
        self.assertEqual(row["us"], None, "it was predicted")
        self.assertRegex(row["winner"], "^vector_add/vectorized THREADS=")
        wheel = pathlib.Path(built.stdout.strip())
        self.assertRegex(wheel.name, r"^kernwright_h100-[0-9.]+\.7-py3-none-any\.whl$")
        first = wheel.read_bytes()
        self.build("--trusted-keys", self.folder / "test.pub")
        self.assertEqual(wheel.read_bytes(), first, "the same bundle gives the same bytes")

        site = self.folder / "site"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        for path in [site, *site.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o022)  # whatever the umask here is
        sys.path.insert(0, str(site))
        self.addCleanup(sys.path.remove, str(site))
        importlib.invalidate_caches()
        folders = [path for path in _data.data_folders() if path.startswith(str(site))]
        self.assertEqual(len(folders), 1)
        self.assertTrue(pathlib.Path(folders[0], "manifest.sig").is_file())
        self.assertEqual(importlib.metadata.version("kernwright-h100").rpartition(".")[2], "7")
        summary = importlib.metadata.metadata("kernwright-h100")["Summary"]
        self.assertIn(": 1 problem (1 of vector_add), ", summary, "which `pip show` prints")
        service = kw.Service(self.folder / "empty", sku="h100_sxm", on_miss="fail")
        self.assertEqual(service.kernel("vector_add n=4096 dtype=bf16").match, "predicted")
        self.assertIn(f"{folders[0]}: 1 record", " ".join(kw.doctor().split()))
        self.assertIn("1 problem (1 of vector_add), ",
                      importlib.metadata.metadata("kernwright-h100").get_payload())

        # A folder that others may write to is passed over.
        os.chmod(folders[0], 0o777)
        with self.assertLogs("kernwright", "WARNING") as logged:
            kw.Service(self.folder / "empty", sku="h100_sxm", on_miss="fail")
        self.assertIn("is passed over: ", logged.output[0])
        self.assertIn("others than you and root may write to it", logged.output[0])

    def test_with_other_keys_no_wheel_is_built(self):
        self.tool("cache", "keygen", self.folder / "other", check=True)
        built = self.build("--trusted-keys", self.folder / "other.pub")
        self.assertNotEqual(built.returncode, 0)
        self.assertIn("signed by none of 1 trusted key", built.stderr)

    def test_the_bundles_of_the_project_hold_what_is_published(self):
        bundles = sorted((ROOT / "src/python/data/bundles").glob("*.tar.zst"))
        self.assertTrue(bundles)
        for bundle in bundles:
            name = bundle.name.partition(".")[0]
            results = self.folder / f"{name}.json"
            built = self.build("--json", results, name=name, bundle=bundle)
            self.assertEqual(built.returncode, 0, built.stderr)
            published = json.loads((ROOT / "bench/results" / name / "sweep_models.json").read_text())
            self.assertEqual(json.loads(results.read_text())["rows"], published["rows"])

    def test_a_bundle_of_another_gpu_is_refused(self):
        built = self.build("--trusted-keys", self.folder / "test.pub", name="h200")
        self.assertEqual(built.returncode, 1)
        self.assertIn("the bundle is of h100_sxm, and one of h200 alone expected", built.stderr)


if __name__ == "__main__":
    unittest.main()
