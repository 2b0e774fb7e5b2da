#!/usr/bin/env python3
"""Tables that were written by hand have the figures of the results files.

A comment before a table says where its figures are from, as JSON:

    <!-- figures: {"of": "bench/results/h200/matmul_vs_cublaslt.json",
                   "where": {"problem": "matmul m={0} n={1} k={2} dtype=fp16", "peer": "cublaslt_best"},
                   "columns": ["ours_us", null, {"field": "ratio", "peer": "cublaslt_first"}]} -->

`columns` are the last columns of the table: the field whose value a column has, null where it is not
looked at, or a field of another row, by what of `where` differs. "100 * share" is a field times a number,
and "min ratio" or "max ratio" that of several rows. `{0}` in `where` is the first word of a row's first
cells, `{row}` its entry in `rows`: a list, in which null is a row that is not looked at and an object adds
to `where`, or the name of a field, whose values are then taken in the order of the file. A figure is right
where it is the value, rounded to as many digits; an empty cell or - where there is none.
"""

import json
import pathlib
import re
import sys
import unittest

from snippets_test import documents_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TABLE = re.compile(r"(?m)^<!-- figures: (?P<spec>\{(?:[^>]|>(?<!-->))*\}) -->\n+(?P<table>(?:\|.*\n)+)")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def value_of(rows, column, where):
    """The value of a column in the rows of the file that are asked for; None where there is none."""
    field = column
    if isinstance(column, dict):
        where = {**where, **{name: text for name, text in column.items() if name != "field"}}
        field = column["field"]
    factor, _, field = field.rpartition(" * ")
    which, _, name = field.rpartition(" ")
    found = [row for row in rows if all(str(row.get(key)) == text for key, text in where.items())]
    values = []
    for row in found:
        for part in name.split("."):
            row = row.get(part) if isinstance(row, dict) else None
        if row is not None:
            values.append(row * float(factor or 1))
    if len(values) > 1 and which not in ("min", "max"):
        raise ValueError(f"{len(values)} rows have {name} where {where}")
    return (max if which == "max" else min)(values) if values else None


def wrong_cells(spec, table, results):
    """What of a table does not agree with the rows of its file."""
    lines = [cells_of(line) for line in table.splitlines()[2:]]
    order = spec.get("rows", [])
    if isinstance(order, str):
        order = list(dict.fromkeys(row[order] for row in results))
    if order and len(order) != len(lines):
        return [f"{len(lines)} rows, and {len(order)} in the file"]
    wrong, compared = [], 0
    for at, line in enumerate(lines):
        if order and order[at] is None:
            continue
        first = len(line) - len(spec["columns"])
        words = " ".join(line[:first]).split()
        entry = order[at] if order else ""
        named = {"row": entry}

        def filled(text):
            return text.format(*words, **named)

        where = {name: filled(text) for name, text in spec["where"].items()}
        where.update(entry if isinstance(entry, dict) else {})
        for cell, column in zip(line[first:], spec["columns"]):
            if column is None:
                continue
            if isinstance(column, dict):
                column = {name: filled(text) for name, text in column.items()}
            value = value_of(results, column, where)
            figures = _NUMBER.findall(cell)
            compared += 1
            if not figures:
                if value is not None:
                    wrong.append(f"{' '.join(words)}: {cell!r}, and the file has {value}")
                continue
            if value is None:
                wrong.append(f"{' '.join(words)}: {cell}, and the file has none where {where}")
                continue
            digits = len(figures[-1].partition(".")[2])
            if abs(float(figures[-1].replace(",", "")) - value) > 0.5001 * 10 ** -digits:
                wrong.append(f"{' '.join(words)}: {cell}, and the file has {value}")
    return wrong if compared else ["nothing was compared"]


class RulesTest(unittest.TestCase):
    SPEC = {"where": {"size": "{0} x {1}"}, "columns": ["us", {"field": "100 * share", "size": "{0} x 2"}]}
    ROWS = [{"size": "1 x 2", "us": 3.14159, "share": 0.5}, {"size": "1 x 3", "us": 2.0, "share": 1}]

    def wrong(self, *lines, spec=None, rows=None):
        table = "".join(f"| {line} |\n" for line in ("head", "---", *lines))
        return wrong_cells(spec or self.SPEC, table, rows or self.ROWS)

    def test_what_is_rounded_right_agrees(self):
        self.assertEqual(self.wrong("1 2 | 3.14 | 50 %", "1 3 | 2.0 | 50"), [])

    def test_another_figure_is_found(self):
        self.assertEqual(len(self.wrong("1 2 | 3.15 | 51 %")), 2)
        self.assertIn("the file has none", self.wrong("1 9 | 3.14 | 50")[0])
        self.assertIn("the file has 3.14159", self.wrong("1 2 | - | 50")[0])

    def test_nothing_in_the_file_is_nothing_in_the_table(self):
        self.assertEqual(self.wrong("1 9 | - | 50"), [])

    def test_rows_may_be_taken_in_order(self):
        spec = {"rows": "size", "where": {"size": "{row}"}, "columns": ["us"]}
        self.assertEqual(self.wrong("first | 3.1", "second | 2", spec=spec), [])
        self.assertEqual(len(self.wrong("first | 3.1", spec=spec)), 1)

    def test_of_several_rows_one_has_to_be_named(self):
        rows = [*self.ROWS, {"size": "1 x 2", "us": 5.0}]
        with self.assertRaises(ValueError):
            self.wrong("1 2 | 3.14", spec={**self.SPEC, "columns": ["us"]}, rows=rows)
        self.assertEqual(self.wrong("1 2 | 5", spec={**self.SPEC, "columns": ["max us"]}, rows=rows), [])

    def test_a_table_that_compares_nothing_is_wrong(self):
        self.assertEqual(self.wrong("1 2 | 3.14", spec={"where": {}, "columns": [None]}), ["nothing was compared"])


class TablesTest(unittest.TestCase):
    def test_all_tables_have_the_figures_of_their_files(self):
        tables = 0
        for path in documents_of(ROOT):
            text = path.read_text()
            found = list(_TABLE.finditer(text))
            self.assertEqual(len(found), text.count("<!-- figures: "), f"{path}: a comment that is of no table")
            for match in found:
                tables += 1
                spec = json.loads(match["spec"])
                results = json.loads((ROOT / spec["of"]).read_text())["rows"]
                line = text.count("\n", 0, match.start("table")) + 1
                with self.subTest(table=f"{path.relative_to(ROOT)}:{line}"):
                    self.assertEqual(wrong_cells(spec, match["table"], results), [])
        self.assertGreater(tables, 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
