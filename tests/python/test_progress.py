"""The reports that a caller of tune() gets meanwhile; test_interrupt_gpu.py shows them on a GPU."""

import io
import sys

import pytest

import kernwright as kw
from kernwright import _progress

PROBLEM = "vector_add n=1024 dtype=fp32"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_says_how_far_it_is():
    line = _progress.ProgressLine("matmul m=1 n=1 k=1 dtype=bf16", 10)
    assert line.text(kw.TuneProgress(412, 96, 255.12, 2.2)) == (
        "matmul: 96 of 412 candidates, best 255.1 us, 8 s left")
    assert line.text(kw.TuneProgress(412, 0, None, 9.8)) == "matmul: 0 of 412 candidates, finishing"


def test_a_line_is_written_anew_and_goes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    line = _progress.ProgressLine("matmul m=1", 10)
    line.close()
    assert terminal.getvalue() == ""
    for measured in (1, 2):
        line.update(kw.TuneProgress(412, measured, 3.25, 1))
    line.close()
    shown = terminal.getvalue().split("\r")
    assert shown[1:3] == ["matmul: 1 of 412 candidates, ", "matmul: 2 of 412 candidates, "]
    assert shown[3].strip() == "" and len(shown[3]) == 29 and shown[4] == ""


def test_it_is_seen_on_a_terminal_and_in_a_notebook(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not _progress.ProgressLine.is_seen()
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    assert _progress.ProgressLine.is_seen()
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert _progress.ProgressLine.is_seen()
    monkeypatch.setattr(sys, "stderr", None)  # as in a program without a console
    assert not _progress.ProgressLine.is_seen()


@pytest.mark.parametrize("progress", ["auto", None, print])
def test_what_may_be_given(service, progress):
    with pytest.raises(kw.Error, match="tuning measures on a GPU"):
        service.tune(PROBLEM, progress=progress)


@pytest.mark.parametrize("progress", ["bar", 3])
def test_what_may_not_be_given(service, progress):
    with pytest.raises(kw.Error, match="'auto', None or a function expected"):
        service.tune(PROBLEM, progress=progress)
