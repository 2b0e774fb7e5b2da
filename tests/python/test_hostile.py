"""Odd and hostile objects, in processes of their own, which must end with their own code."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HOSTILE = pathlib.Path(__file__).with_name("hostile.py")
NAMES = re.findall(r"^@case\ndef (\w+)", HOSTILE.read_text(), re.MULTILINE)
# Cases that end the process, or change it for good.
ALONE = [name for name in NAMES if name.startswith("exit_") or name in (
    "recursion", "garbage_while_reading", "handlers_that_raise")]


def run(names):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-X", "faulthandler", HOSTILE, *names], env=environment,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True,
                           errors="replace")
    assert ended.returncode == 0, ended.stdout[-4000:]


def test_no_object_ends_the_process(compiler):
    run([name for name in NAMES if name not in ALONE])


@pytest.mark.parametrize("name", ALONE)
def test_no_object_ends_a_process_of_its_own(compiler, name):
    run([name])
