"""Records, as a program and a notebook see them. The records of tests/data/cache were tuned in a simulation."""

import html.parser
import math
import pathlib
import re

import pytest

import kernwright as kw

CACHE = pathlib.Path(__file__).resolve().parents[1] / "data/cache"
PROBLEM = "matmul m=16 n=4096 k=4096 dtype=bf16"


@pytest.fixture(scope="module")
def record():
    return kw.Service(CACHE, sku="h200").record(kw.Problem("matmul", m=16, n=4096, k=4096,
                                                           dtype="bf16"))


def test_it_says_what_won_and_how_sure_that_is(record):
    assert record.problem == PROBLEM
    assert (record.grade, record.verdict, record.trust) == ("measured", "win", "A")
    assert record.support == "supported"
    assert record.template == "matmul/skinny"
    assert record.configuration == record.data["finalists"][0]["configuration"]
    assert record.us == pytest.approx(9.5, rel=0.05)
    estimate, low, high = record.speedup
    assert 1 < low < estimate < high
    assert "A win: every other finalist is slower." in str(record)
    assert PROBLEM in repr(record) and "win A" in repr(record)


def test_its_data_are_all_of_it_and_its_own(record):
    data = record.data
    assert data["default"] == pytest.approx([math.log(value) for value in record.speedup])
    assert len(data["samples"]["us"]) > 8 and data["trials"]["us"] and data["audit"]
    data["problem"] = "another"
    data["finalists"].clear()
    assert record.problem == PROBLEM and record.template


class Elements(html.parser.HTMLParser):
    """Checks that elements end in the order in which they began."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_notebook_shows_it_without_script_and_requests(record):
    text = record._repr_html_()
    elements = Elements()
    elements.feed(text)
    elements.close()
    assert elements.open == []
    assert elements.seen.count("svg") == 3, "one picture for each width of a page"
    assert elements.seen.count("table") == 1
    assert not {"script", "style", "link", "img", "iframe"} & set(elements.seen)
    assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}
    for part in (PROBLEM, "win", "trust A", "supported", "matmul/skinny"):
        assert part in text


def test_the_active_service_has_records_too(record):
    with kw.Service(CACHE, sku="h200"):
        assert kw.record(PROBLEM).data == record.data


def test_without_a_record_the_problem_is_named(service):
    with pytest.raises(kw.Error, match="no record for vector_add n=8 dtype=fp32 on h200") as caught:
        service.record("vector_add n=8 dtype=fp32")
    assert caught.value.problem == "vector_add n=8 dtype=fp32"
    with pytest.raises(kw.Error, match="nonsense"):
        service.record("nonsense n=8")
