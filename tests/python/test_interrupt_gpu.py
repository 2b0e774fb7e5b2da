#!/usr/bin/env python3
"""Ctrl-C ends a tuning on a GPU, and with it the processes that it had started."""

import pathlib
import signal
import tempfile
import threading
import time
import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

from processes import DEADLINE, helpers, wait_until

import kernwright as kw


@unittest.skipIf(NO_GPU, NO_GPU)
class InterruptGpuTest(unittest.TestCase):
    def test_ctrl_c_ends_a_tuning_and_leaves_no_worker_behind(self):
        service = kw.Service(tempfile.mkdtemp())
        seen = []

        def press():
            if wait_until(lambda: helpers("worker")):
                seen.extend(helpers("worker"))
            signal.raise_signal(signal.SIGINT)

        presses = threading.Thread(target=press)
        problem = "matmul m=1024 n=1024 k=1024 dtype=fp16"
        begun = time.monotonic()
        presses.start()
        with self.assertRaises(KeyboardInterrupt):
            service.tune(problem, seconds=10 * DEADLINE)
        presses.join()
        self.assertTrue(seen, "no worker process was seen, so nothing is shown")
        self.assertLess(time.monotonic() - begun, 2 * DEADLINE)
        self.assertTrue(wait_until(lambda: not helpers("worker")), f"left behind: {helpers('worker')}")
        for worker in seen:
            self.assertFalse(pathlib.Path(f"/proc/{worker}").exists())
        # Nothing was kept, and the service goes on.
        self.assertEqual(service.kernel(problem).match, "predicted")
        self.assertIn(service.tune("vector_add n=4096 dtype=fp32", seconds=1).match, ("exact",))
        del service
        self.assertTrue(wait_until(lambda: not helpers("compiler")), f"left behind: {helpers('compiler')}")

    def test_a_tuning_tells_how_far_it_is_and_ends_with_what_the_listener_raises(self):
        service, told = kw.Service(tempfile.mkdtemp()), []
        problem = "matmul m=1024 n=1024 k=1024 dtype=fp16"
        service.tune(problem, seconds=3, progress=told.append)
        self.assertTrue(told)
        self.assertGreater(told[-1].measured, 0)
        self.assertLessEqual(told[-1].measured, told[-1].candidates)
        self.assertGreater(told[-1].best_us, 0)
        self.assertEqual([at.seconds for at in told], sorted(at.seconds for at in told))

        def leave(at):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            service.tune(problem.replace("m=1024", "m=512"), seconds=10 * DEADLINE, progress=leave)
        self.assertTrue(wait_until(lambda: not helpers("worker")), f"left behind: {helpers('worker')}")


if __name__ == "__main__":
    unittest.main()
