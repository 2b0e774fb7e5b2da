#!/usr/bin/env python3
"""Ctrl-C ends a tuning on a GPU, and with it the processes that it had started."""

import os
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

import kernwright as kw

DEADLINE = 60  # seconds until a test that waits in vain fails


def helpers(word):
    """The processes of `kernwright WORD` below this one, also those that have ended and that nobody
    has waited for."""
    found, own = [], {os.getpid()}
    for _ in range(3):  # children, their children, and theirs
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent in own and int(folder.name) not in own:
                own.add(int(folder.name))
                if word.encode() in words:
                    found.append(int(folder.name))
    return found


def wait_until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


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


if __name__ == "__main__":
    unittest.main()
