#!/usr/bin/env python3
"""The needs of a serving program, without a GPU: prewarming, shapes on record, autotuning, the seal, metrics,
and packages of data."""

import importlib.metadata
import json
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import kernwright as kw
from kernwright import _data, _kernwright, _service

PROBLEM = "vector_add n=4096 dtype=bf16"
OTHER = "vector_add n=8 dtype=bf16"


class ServingTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "shapes.jsonl"
        # It compiles nothing, so that no toolkit is needed.
        self.service = self.open(on_miss="fail")

    def open(self, **options):
        return kw.Service(self.folder / "cache", sku="h200", **options)

    def ask(self, problem=PROBLEM):
        with self.assertRaises(kw.Error) as missing:
            self.service.kernel(problem)
        return missing.exception

    def recorded(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def test_the_innermost_record_of_shapes_counts(self):
        inner = self.folder / "inner.jsonl"
        with self.service.record_shapes(self.file):
            with self.service.record_shapes(inner):
                self.ask(OTHER)
            self.ask(PROBLEM)
        self.ask("vector_add n=16 dtype=bf16")
        self.assertEqual({line["problem"] for line in self.recorded()}, {PROBLEM})
        self.assertIn(OTHER, inner.read_text())

    def test_a_sealed_service_names_the_problem_and_the_remedy(self):
        self.service = self.open()
        self.service.seal()
        refused = self.ask()
        self.assertEqual(refused.problem, PROBLEM)
        self.assertIn("needs a compile (absent), and the service is sealed", refused.reason)
        self.assertIn("prewarm it before the seal", refused.reason)
        self.assertEqual(str(refused).count(PROBLEM), 1, "it is named once")

    def test_a_mode_that_does_not_exist_is_refused(self):
        with self.assertRaisesRegex(kw.Error, 'mode is "gently"'):
            self.service.seal("gently")

    def test_metrics_are_prometheus_text_without_problems(self):
        self.ask()
        with self.service:
            self.assertIn("\nkernwright_ready 0\n", kw.metrics())
            kw.seal("warning")
            text = kw.metrics()
        self.assertIn('kernwright_lookups_total{match="none",reason="absent"} 1\n', text)
        self.assertIn("\nkernwright_ready 1\n", text)
        self.assertNotIn("vector_add", text)
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) kernwright_\w+ .+|"
                                   r"kernwright_\w+(\{[^}]*\})? [0-9.]+)$")

    def test_shapes_are_recorded_while_the_block_lasts(self):
        with self.service, kw.record_shapes(self.file):
            for _ in range(3):
                self.ask()
        self.ask(OTHER)
        self.assertEqual({line["problem"] for line in self.recorded()}, {PROBLEM})
        self.assertEqual(sum(line.get("count", 1) for line in self.recorded()), 3)

    def test_close_ends_a_recording_once(self):
        recording = self.service.record_shapes(self.file)
        self.ask()
        recording.close()
        recording.close()
        self.ask(OTHER)
        self.assertEqual(len(self.recorded()), 1)

    def test_a_file_of_something_else_is_left_alone(self):
        self.file.write_text('{"problems": []}\n')
        with self.assertRaisesRegex(kw.Error, "is there and is no log of lookups"):
            self.service.record_shapes(self.file)
        self.assertEqual(self.file.read_text(), '{"problems": []}\n')

    def test_operations_ask_again_when_a_watch_begins_and_ends(self):
        plans = (self.service.plans, _service._everywhere.plans)
        for kept in plans:
            kept["signature"] = "plan"
        with self.service.record_shapes(self.file):
            self.assertFalse(any(plans))
            self.service.plans["signature"] = "plan"
        self.assertFalse(any(plans))

    def test_autotune_tunes_which_needs_a_gpu(self):
        with self.service, kw.autotune(seconds=1):
            self.assertIn("tuning measures on a GPU", self.ask().reason)
        self.assertIn("the miss policy is fail", self.ask().reason)

    def test_of_autotunes_in_each_other_the_innermost_counts(self):
        told = []
        real = _kernwright.autotune
        with mock.patch.object(_kernwright, "autotune",
                               lambda service, seconds: told.append(seconds)):
            with self.service.autotune(5), self.service.autotune(1):
                pass
        self.assertEqual(told, [5, 1, 5, 0])
        with self.assertRaisesRegex(kw.Error, "seconds must be 0 or more"):
            real(self.service._handle, -1)

    def test_prewarm_names_every_problem_that_is_missing(self):
        with self.service, self.assertRaises(kw.Error) as missing:
            kw.prewarm([PROBLEM, OTHER])
        self.assertIn("2 of 2 problems cannot be served", missing.exception.reason)

    def test_prewarm_refuses_a_file_without_problems(self):
        for text in ('{"problems": []}', '{"problem": ["vector_add n=8"]}'):
            self.file.write_text(text)
            with self.assertRaises(kw.Error):
                self.service.prewarm(self.file)

    def test_prewarm_takes_a_worklist_and_a_recorded_file(self):
        with self.service.record_shapes(self.file):
            self.ask()
        with self.assertRaisesRegex(kw.Error, "1 of 1 problem cannot be served"):
            self.service.prewarm(self.file)
        worklist = self.folder / "worklist.json"
        worklist.write_text('{"problems": [{"operation": "vector_add", "dims": {"n": "8:32:x2"}, '
                            '"flags": {"dtype": "bf16"}}]}')
        with self.assertRaisesRegex(kw.Error, "3 of 3 problems cannot be served"):
            self.service.prewarm(str(worklist))
        with self.assertRaisesRegex(kw.Error, "nowhere.json"):
            self.service.prewarm("nowhere.json")

    def test_a_kernel_is_looked_for_with_the_stream_of_the_arrays(self):
        asked = []

        def best_kernel(service, kind, problem, stream=None):
            asked.append(stream)
            raise kw.Error("no")

        with mock.patch.object(_kernwright, "best_kernel", best_kernel), \
                mock.patch.object(_kernwright, "current_stream", lambda array: array):
            for arrays in ((None, 7, 8), (None,)):
                with self.assertRaises(kw.Error), _service.launching_like(arrays):
                    self.open().kernel_on(0, PROBLEM)
            with self.assertRaises(kw.Error):
                self.open().kernel_on(0, PROBLEM)
        self.assertEqual(asked, [7, None, None])


class DataPackagesTest(unittest.TestCase):

    def entry(self, name, load):
        entry = mock.Mock()
        entry.name, entry.load = name, load
        return entry

    def test_their_folders_are_found_and_those_that_fail_are_logged(self):
        def fail():
            raise ImportError("broken")

        def leave():
            raise SystemExit(3)

        def interrupt():
            raise KeyboardInterrupt

        entries = [self.entry("h100", lambda: "/data/h100"), self.entry("h200", fail),
                   self.entry("leaves", leave), self.entry("interrupts", interrupt),
                   self.entry("nul", lambda: "/data/\0"), self.entry("lone", lambda: "/data/\ud800")]
        with mock.patch.object(importlib.metadata, "entry_points", return_value=entries) as asked, \
                self.assertLogs("kernwright", "WARNING") as logged:
            self.assertEqual(_data.data_folders(), ["/data/h100"])
        asked.assert_called_once_with(group="kernwright.data")
        for line, said in zip(logged.output, ("h200 is left out: ImportError('broken')",
                                              "leaves is left out: SystemExit(3)",
                                              "interrupts is left out: KeyboardInterrupt()",
                                              "nul is left out: ", "lone is left out: "), strict=True):
            self.assertIn(said, line)

    def test_a_folder_that_is_no_bundle_is_passed_over(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(_service, "data_folders", lambda: [folder]), \
                self.assertLogs("kernwright", "WARNING") as logged:
            service = kw.Service(folder + "/cache", sku="h200", on_miss="fail")
        self.assertTrue(re.search("is passed over: .*manifest.json", logged.output[0]), logged.output)
        self.assertIn('bundle="none"', service.metrics())


if __name__ == "__main__":
    unittest.main()
