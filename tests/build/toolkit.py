"""Whether the tool finds a compiler here. Tests that need one are skipped without it; asking first keeps
every other failure of theirs a failure."""

import json
import subprocess
import sys


def skip_without_compiler(tool):
    """Ends the process as skipped, with the tool's reason, where it finds no compiler."""
    ran = subprocess.run([tool, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(ran.stdout)
    if report["compiler"] is None:
        print(f"cannot run here: {report['no_compiler']}")
        sys.exit(77)
