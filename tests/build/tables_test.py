#!/usr/bin/env python3
"""Tables of documents have the figures of the results files: tables_test.py [--write], which writes them.

A comment before a table says where its figures are from, as JSON:

    <!-- figures: {"of": "bench/results/h200/matmul_vs_cublaslt.json",
                   "where": {"problem": "matmul m={0} n={1} k={2} dtype=fp16", "peer": "cublaslt_best"},
                   "columns": ["ours_us", null, {"field": "ratio", "peer": "cublaslt_first"}]} -->

`columns` are the last columns of the table: the field whose value a column has, null where it is not
looked at, or a field of another row, by what of `where` differs. "100 * share" is a field times a number,
and "min ratio" or "max ratio" that of several rows. `{0}` in `where` is the first word of a row's first
cells, `{row}` its entry in `rows`: a list, in which null is a row that is not looked at and an object adds
to `where`, or the name of a field, whose values are then taken in the order of the file. The last figure of
a cell is replaced by the value, rounded to as many digits, and by - if the file has none.
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


def rewritten(cell, value):
    """The cell with the value in place of its last figure, to as many digits."""
    figures = list(_NUMBER.finditer(cell))
    if value is None:
        return "-" if figures else cell
    if not figures:
        raise ValueError(f"{cell!r} does not say to how many digits {value} is wanted")
    figure = figures[-1]
    digits = len(figure[0].partition(".")[2])
    text = f"{value:{'+' if figure[0][0] == '+' else ''}{',' if ',' in figure[0] else ''}.{digits}f}"
    return cell[:figure.start()] + text + cell[figure.end():]


def written(spec, table, results):
    """The table with the figures of its file's rows."""
    head, lines = table.splitlines()[:2], [cells_of(line) for line in table.splitlines()[2:]]
    order = spec.get("rows", [])
    if isinstance(order, str):
        order = list(dict.fromkeys(row[order] for row in results))
    if order and len(order) != len(lines):
        raise ValueError(f"{len(lines)} rows, and {len(order)} in the file")
    for line, entry in zip(lines, order or [""] * len(lines)):
        if entry is None:
            continue
        first = len(line) - len(spec["columns"])
        words = " ".join(line[:first]).split()

        def filled(texts):
            return {name: text.format(*words, row=entry) for name, text in texts.items()}

        where = filled(spec["where"]) | (entry if isinstance(entry, dict) else {})
        for at, column in enumerate(spec["columns"], first):
            if column is not None:
                column = filled(column) if isinstance(column, dict) else column
                line[at] = rewritten(line[at], value_of(results, column, where))
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def with_figures(path):
    """The document with its tables written anew."""
    text = path.read_text()
    found = len(_TABLE.findall(text))
    if found != text.count("<!-- figures: "):
        raise ValueError(f"{path}: a comment that is of no table")

    def replace(match):
        spec = json.loads(match["spec"])
        results = json.loads((ROOT / spec["of"]).read_text())["rows"]
        return match[0][:match.start("table") - match.start()] + written(spec, match["table"], results)

    return _TABLE.sub(replace, text)


class TablesTest(unittest.TestCase):
    SPEC = {"where": {"size": "{0} x {1}"}, "columns": ["us", {"field": "100 * share", "size": "{0} x 2"}]}
    ROWS = [{"size": "1 x 2", "us": 3.14159, "share": 0.5}, {"size": "1 x 3", "us": 2.0, "share": 1}]

    def lines(self, *lines, rows=None, **spec):
        table = "".join(f"| {line} |\n" for line in ("head", "---", *lines))
        made = written({**self.SPEC, **spec}, table, rows or self.ROWS)
        return [line.strip("| ") for line in made.splitlines()[2:]]

    def test_figures_are_written_to_as_many_digits(self):
        self.assertEqual(self.lines("1 2 | 9.99 | 9 %", "1 3 | 9.9 | 9"), ["1 2 | 3.14 | 50 %", "1 3 | 2.0 | 50"])
        self.assertEqual(self.lines("1 9 | 3.14 | 50"), ["1 9 | - | 50"])
        with self.assertRaises(ValueError):
            self.lines("1 2 | - | 50")

    def test_rows_may_be_taken_in_order(self):
        spec = {"rows": "size", "where": {"size": "{row}"}, "columns": ["us"]}
        table = "| head | us |\n| --- | --- |\n| first | 9.9 |\n| second | 9 |\n"
        self.assertEqual(written(spec, table, self.ROWS).splitlines()[2:], ["| first | 3.1 |", "| second | 2 |"])

    def test_of_several_rows_one_has_to_be_named(self):
        rows = [*self.ROWS, {"size": "1 x 2", "us": 5.0}]
        with self.assertRaises(ValueError):
            self.lines("1 2 | 3.14", rows=rows, columns=["us"])
        self.assertEqual(self.lines("1 2 | 9", rows=rows, columns=["max us"]), ["1 2 | 5"])

    def test_all_tables_have_the_figures_of_their_files(self):
        for path in documents_of(ROOT):
            with self.subTest(document=path.relative_to(ROOT)):
                self.assertEqual(path.read_text(), with_figures(path), "make golden writes it anew")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for document in documents_of(ROOT):
            document.write_text(with_figures(document))
    else:
        unittest.main()
