#!/usr/bin/env python3
"""Runs ctest and, before its own summary, says how many tests ran and why others were skipped."""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    """The text a skipped case printed: what GTEST_SKIP was given, or a script's last line."""
    text = case.findtext("system-out") or ""
    found = re.search(r": Skipped\n(.*?)\n(?:\n|\[)", text, re.DOTALL)
    if found:
        return " ".join(found.group(1).split())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def report(junit):
    """Prints the counts of the JUnit file that ctest wrote; one line per reason to skip."""
    cases = ElementTree.parse(junit).getroot().findall("testcase")
    skipped = collections.Counter()
    gpu_skipped = 0
    for case in cases:
        if case.get("status") in ("notrun", "disabled"):
            skipped[skip_reason(case)] += 1
            gpu_skipped += "Gpu" in case.get("name")
    print(f"\n{len(cases) - skipped.total()} tests ran, {skipped.total()} skipped, "
          f"{gpu_skipped} of them GPU tests")
    for reason, count in skipped.most_common():
        print(f"  {count:4d} skipped: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--jobs", default="1")
    arguments, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        junit = pathlib.Path(folder) / "junit.xml"
        command = ["ctest", "--preset", arguments.preset, "-j", arguments.jobs,
                   "--output-junit", str(junit), *rest]
        held = []  # ctest's summary: it stays the last thing printed
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ctest:
            for line in ctest.stdout:
                if held or re.match(r"\d+% tests passed", line):
                    held.append(line)
                elif "***Skipped" not in line:
                    print(line, end="", flush=True)
                if "***Timeout" in line:
                    print("  its limit is execution.timeout of the test presets in CMakePresets.json")
        if junit.exists():
            report(junit)
        print("\n" + "".join(held), end="")
        return ctest.returncode


if __name__ == "__main__":
    sys.exit(main())
