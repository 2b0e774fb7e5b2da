"""Threads that read tensors while the interpreter ends."""

import os
import subprocess
import sys

DAEMONS = """
import threading, time, torch
from kernwright import _kernwright
x = torch.randn(8, 8)
def read():
    while True:
        _kernwright.read(x)
for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
time.sleep(0.3)
"""

# What is registered before kernwright is imported runs after the notice of the interpreter's end.
LATE = """
import atexit, threading
ends = threading.Event()
def read():
    negated = torch.randn(8, dtype=torch.complex64).conj().imag
    ends.wait()
    print(_kernwright.read(torch.randn(8))[2])
    try:
        _kernwright.read(negated)
    except ValueError as error:
        print(error)
thread = threading.Thread(target=read, daemon=True)
atexit.register(lambda: (ends.set(), thread.join()))
import torch
from kernwright import _kernwright
thread.start()
"""


def run(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ended.returncode == 0, ended.stdout[-4000:]
    return ended.stdout


def test_daemons_do_not_abort_the_process():
    for _ in range(3):
        assert run(DAEMONS) == ""


def test_a_late_thread_reads_tensors():
    lines = run(LATE).splitlines()
    assert lines[0] == "(8,)"
    assert "a view that negates what lies in memory" in lines[1]
