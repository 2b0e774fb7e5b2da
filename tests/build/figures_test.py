#!/usr/bin/env python3
"""README.md has the figures of bench/results, and the page of all figures can be counted from them."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src/docs/site"))
import documents  # noqa: E402
import figures  # noqa: E402

for headline in figures.headlines():
    if headline not in (ROOT / "README.md").read_text():
        sys.exit(f"README.md does not say: {headline}")
if figures.chart().count('<div class="speed">') < 8:
    sys.exit("the chart of the first page lacks a bar")
tables = figures.reference()
for sku in ("H200", "H100"):
    if f"## {sku}: kernels" not in tables or f"## {sku}: decode steps" not in tables:
        sys.exit(f"the figures of the {sku} are not there")
shown = "".join((ROOT / path).read_text() for path in documents.documents())
for name, table in figures.TABLES.items():
    if f"<!-- generated: {name} -->" not in shown:
        sys.exit(f"no document shows the table {name}")
    made = table()
    if made.count("\n") < 4:
        sys.exit(f"the table {name} is empty: {made}")
    tables += made
for line in tables.splitlines():
    if line.startswith("| 0 ") or "nan" in line:
        sys.exit(f"nothing was counted: {line}")
