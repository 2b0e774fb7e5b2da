"""Finds out whether the tool finds a compiler and a GPU here. Tests that need one are skipped without it;
asking first keeps every other failure of theirs a failure."""

import json
import subprocess
import sys


def doctor(tool):
    ran = subprocess.run([tool, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def has_gpu(tool):
    return bool(doctor(tool)["devices"])


def skip_without_compiler(tool):
    """Ends the process as skipped, with the tool's reason, if it finds no compiler."""
    report = doctor(tool)
    if report["compiler"] is None:
        print(f"cannot run here: {report['no_compiler']}")
        sys.exit(77)
