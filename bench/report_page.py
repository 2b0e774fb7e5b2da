#!/usr/bin/env python3
"""Measures the size of a report of many problems, and how fast it opens and filters in a headless Chromium.

The records are simulated searches of spaces that were recorded on an H200 (tests/programs/report_samples.cpp).
Opening is from the navigation to the second frame that was drawn; filtering and sorting from the event to
the frame that shows it; the median of five each.

usage: report_page.py --json FILE [--problems 500] [--bin FOLDER]
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/build"))
from browser import Browser  # noqa: E402

RUNS = 5
FILTER = """new Promise(done => {
  const begin = performance.now();
  const search = document.querySelector('input[type=search]');
  search.value = '%s';
  search.dispatchEvent(new Event('input', {bubbles: true}));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)))})"""
SORT = """new Promise(done => {
  const begin = performance.now();
  document.querySelector('th.k-time button').click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)))})"""
OPEN_ROW = """new Promise(done => {
  const begin = performance.now();
  document.querySelectorAll('button.open')[%d].click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)))})"""


def milliseconds(values):
    return round(statistics.median(values), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, metavar="FILE")
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", metavar="FOLDER")
    arguments = parser.parse_args()
    if missing := Browser.missing():
        print(missing, "here", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        cache, page = pathlib.Path(folder) / "cache", pathlib.Path(folder) / "report.html"
        subprocess.run([arguments.bin / "kernwright_report_samples", ROOT / "bench/results/h200/landscapes", cache,
                        str(arguments.problems)], check=True)
        begin = time.monotonic()
        subprocess.run([arguments.bin / "kernwright", "report", cache, "-o", page], check=True, stdout=subprocess.DEVNULL)
        written = time.monotonic() - begin
        with Browser() as browser:
            browser.view(1360)
            opens = [1000 * browser.open(page) for _ in range(RUNS)]
            filters = [browser.run(FILTER % word) for word in ("m=16", "", "rows=4096 bf16", "", "vector_add")]
            browser.run(FILTER % "")
            sorts = [browser.run(SORT) for _ in range(RUNS)]
            rows = [browser.run(OPEN_ROW % i) for i in range(RUNS)]
            version = browser.version
            complaints = browser.complaints
        figures = {"problems": arguments.problems, "bytes": page.stat().st_size, "write_ms": round(1000 * written),
                   "open_ms": milliseconds(opens), "filter_ms": milliseconds(filters), "sort_ms": milliseconds(sorts),
                   "open_row_ms": milliseconds(rows)}
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    result = {"command": " ".join(sys.argv), "commit": commit.stdout.strip(), "browser": version,
              "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "report": figures}
    pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(figures, indent=1))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
