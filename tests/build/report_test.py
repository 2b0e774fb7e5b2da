#!/usr/bin/env python3
"""Looks at a report in a headless Chromium: nothing is asked for, nothing is complained of, sorting and
filtering work by mouse and by keyboard, and pictures of fixed data are those of tests/data/report.
  report_test.py KERNWRIGHT REPORT_SAMPLES LIBRARY
With $KERNWRIGHT_GOLDEN, a folder, the pictures are written there instead.

Fonts differ from machine to machine, so pictures are compared without their text: an svg of fixed width
is drawn alike wherever it is drawn. A few edges may still be smoothed otherwise, so a share of the
pixels may differ, and each pixel by a little.
"""

import ctypes
import gzip
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANDSCAPES = ROOT / "bench/results/h200/landscapes"
DATA = ROOT / "tests/data/report"
CACHE = ROOT / "tests/data/cache"
PROBLEM = "matmul m=16 n=4096 k=4096 dtype=bf16"
PIXEL_TOLERANCE = 24  # of 255, in any channel
SHARE_TOLERANCE = 0.01  # of the pixels that may differ by more
BEGIN, END = '<script type="application/json" id="data">', "</script>"


def difference(one, other):
    """Returns the share of the pixels that differ; 1 if the sizes do."""
    from PIL import Image, ImageChops
    one, other = (Image.open(io.BytesIO(png)).convert("RGB") for png in (one, other))
    if one.size != other.size:
        return 1.0
    red, green, blue = ImageChops.difference(one, other).split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    return sum(most.histogram()[PIXEL_TOLERANCE + 1:]) / (one.width * one.height)


class Options(ctypes.Structure):
    """The first fields of kw_options."""
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, ctypes.c_char_p) for name in ("cache", "template_dir", "sku")]


def card(cache, problem):
    """The record of a problem as a notebook shows it."""
    library = ctypes.CDLL(LIBRARY)
    library.kw_last_error.restype = library.kw_characters.restype = ctypes.c_char_p
    options = Options(ctypes.sizeof(Options), os.fsencode(cache), None, b"h200")
    service, text = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.kw_open(ctypes.byref(options), ctypes.byref(service)) == 0, library.kw_last_error()
    assert library.kw_record(service, problem.encode(), b"html", ctypes.byref(text)) == 0, library.kw_last_error()
    try:
        return library.kw_characters(text).decode()
    finally:
        library.kw_release_text(text)
        library.kw_close(service)


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scope = tempfile.TemporaryDirectory(prefix="kernwright-report-")
        cls.folder = pathlib.Path(cls.scope.name)
        cls.page = cls.report("many", 30)
        cls.single = cls.report("single", 1)
        cls.families = cls.family_report()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.scope.cleanup()

    @classmethod
    def report(cls, name, count, *options):
        cache = cls.folder / name
        subprocess.run([SAMPLES, LANDSCAPES, cache, str(count)], check=True)
        page = cls.folder / f"{name}.html"
        subprocess.run([KERNWRIGHT, "report", cache, "-o", page, *options], check=True, stdout=subprocess.DEVNULL)
        return page

    @classmethod
    def family_report(cls):
        """A report of the records of ranges that were measured on an H200."""
        lines, cache, page = (cls.folder / name for name in ("families.jsonl", "families", "families.html"))
        lines.write_bytes(gzip.decompress((LANDSCAPES.parent / "families.jsonl.gz").read_bytes()))
        subprocess.run([SAMPLES, "--families", lines, cache], check=True)
        subprocess.run([KERNWRIGHT, "report", cache, "-o", page], check=True, stdout=subprocess.DEVNULL)
        return page

    def setUp(self):
        self.browser.complaints.clear()
        self.browser.requests.clear()
        self.browser.view(1280)

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    def shown(self):
        """The numbers of the problems in the table, in its order."""
        return self.browser.run("[...document.querySelectorAll('tr[data-index]')].map(row => Number(row.dataset.index))")

    def test_nothing_but_the_file_is_asked_for(self):
        self.browser.open(self.page)
        self.browser.run("document.querySelectorAll('button.open').forEach(button => button.click())")
        self.browser.frame()
        self.assertEqual([url for url in self.browser.requests if not url.startswith("data:")],
                         [self.page.as_uri()])

    def test_its_policy_lets_no_other_script_run(self):
        text = self.page.read_text()
        odd = self.folder / "odd.html"
        odd.write_text(text.replace("</body>", "<script>window.ran = true</script><img src='https://example.com/x'></body>"))
        self.browser.open(odd)
        self.assertIsNone(self.browser.run("window.ran"))
        self.assertIn("Content Security Policy", " ".join(self.browser.complaints))
        self.browser.complaints.clear()

    def test_texts_of_strangers_are_text(self):
        text = self.page.read_text()
        data = json.loads(text[text.index(BEGIN) + len(BEGIN):text.index(END, text.index(BEGIN))])
        evil = "<img src=x onerror=window.ran=1></script><script>window.ran=1</script>"
        problem = data["problems"][0]
        problem["problem"] = problem["next"] = problem["device"] = evil
        problem["finalists"][0]["template"] = evil
        problem["audit"].append([evil, "C", evil])
        page = self.with_data("evil", data)
        self.browser.open(page)
        self.browser.run("document.querySelector('button.open').click()")
        self.browser.frame()
        self.assertIsNone(self.browser.run("window.ran"))
        self.assertIn(evil, self.browser.run("document.querySelector('button.open').textContent"))

    def with_data(self, name, data):
        """The page with other data in it."""
        text = self.page.read_text()
        begin = text.index(BEGIN) + len(BEGIN)
        page = self.folder / f"{name}.html"
        page.write_text(text[:begin] + json.dumps(data).replace("<", "\\u003c") + text[text.index(END, begin):])
        return page

    def test_words_and_selects_filter(self):
        self.browser.open(self.page)
        self.assertEqual(len(self.shown()), 30)
        self.browser.run("""{const search = document.querySelector('input[type=search]');
            search.focus(); search.value = 'M=16 n=28672'; search.dispatchEvent(new Event('input', {bubbles: true}))}""")
        texts = self.browser.run("[...document.querySelectorAll('button.open')].map(button => button.textContent)")
        self.assertGreater(len(texts), 0)
        for text in texts:
            self.assertIn("m=16 n=28672", text)
        self.browser.run("""{const select = document.querySelector('select[data-filter=operation]');
            select.value = 'rmsnorm'; select.dispatchEvent(new Event('change', {bubbles: true}))}""")
        self.assertEqual(self.shown(), [])
        self.assertEqual(self.browser.run("document.querySelector('.count').textContent"), "0 of 30 problems")
        self.browser.run("[...document.querySelectorAll('button')].find(button => button.textContent === 'Clear').click()")
        self.assertEqual(len(self.shown()), 30)

    def test_a_bad_sign_shows_its_records(self):
        self.browser.open(self.page)
        text = self.browser.run("document.querySelector('.signs li').textContent")
        self.browser.run("document.querySelector('.signs button').click()")
        self.assertTrue(text.startswith(f"{len(self.shown())} record"), text)
        self.assertGreater(len(self.shown()), 0)

    def test_problems_begin_in_natural_order(self):
        self.browser.open(self.page)
        self.assertEqual(self.browser.run("document.querySelector('th.k-problem').ariaSort"), "ascending")
        texts = self.browser.run("[...document.querySelectorAll('button.open')].map(button => button.textContent)")
        numbers = [[int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)] for text in texts]
        self.assertEqual(numbers, sorted(numbers))
        self.assertNotEqual(texts, sorted(texts), "numbers are no texts")
        self.browser.run("document.querySelector('th.k-problem button').click()")
        self.assertEqual(self.browser.run("[...document.querySelectorAll('button.open')].map(button => button.textContent)"), texts[::-1])

    def test_heads_sort_and_say_so(self):
        self.browser.open(self.page)
        click = "document.querySelector('th.k-time button').click()"
        times = "[...document.querySelectorAll('tr[data-index]')].map(row => JSON.parse(document.getElementById('data').textContent).problems[row.dataset.index].us)"
        self.browser.run(click)
        self.assertEqual(self.browser.run("document.querySelector('th.k-time').ariaSort"), "descending")
        self.assertEqual(self.browser.run(times), sorted(self.browser.run(times), reverse=True))
        self.browser.run(click)
        self.assertEqual(self.browser.run("document.querySelector('th.k-time').ariaSort"), "ascending")
        self.assertEqual(self.browser.run(times), sorted(self.browser.run(times)))

    def test_a_row_opens_by_keyboard(self):
        self.browser.open(self.page)
        self.browser.run("document.querySelector('button.open').focus()")
        self.browser.press("ArrowDown")
        self.browser.press("Enter")
        self.browser.frame()
        opened = "document.querySelectorAll('tr.detail').length"
        self.assertEqual(self.browser.run(opened), 1)
        self.assertEqual(self.browser.run("document.querySelectorAll('tr[data-index]')[1].nextSibling.className"), "detail")
        self.assertEqual(self.browser.run("document.activeElement.ariaExpanded"), "true")
        names = self.browser.run("[...document.querySelectorAll('tr.detail h3')].map(head => head.textContent)")
        self.assertEqual(names, ["Race", "Landscape", "History of the search", "What matters", "Samples and clock",
                                 "Launch paths", "Evidence"])
        self.browser.run("[...document.querySelectorAll('figure')].find(one => one.innerText.startsWith('Landscape')).querySelector('.picture').focus()")
        self.browser.press("ArrowRight")
        self.assertIn("trial 1 ", self.browser.run("document.getElementById('tip').textContent"))
        self.browser.press("Enter")
        self.assertEqual(self.browser.run("document.querySelectorAll('.pins li').length"), 1)
        self.browser.press("Escape")
        self.assertTrue(self.browser.run("document.getElementById('tip').hidden"))

    def filter(self, text):
        self.browser.run(f"""{{const search = document.querySelector('input[type=search]');
            search.value = {json.dumps(text)}; search.dispatchEvent(new Event('input', {{bubbles: true}}))}}""")
        self.browser.frame()

    def data(self, page=None):
        text = (page or self.page).read_text()
        begin = text.index(BEGIN) + len(BEGIN)
        return json.loads(text[begin:text.index(END, begin)])

    def test_all_of_a_row_opens_it(self):
        self.browser.open(self.page)
        opened = "[...document.querySelectorAll('tr.opened')].map(row => Number(row.dataset.index))"
        third = self.shown()[2]
        for cell in ("k-time", "k-support"):
            self.browser.run(f"document.querySelector('tr[data-index=\"{third}\"] .{cell}').click()")
            self.assertEqual(self.browser.run(opened), [third] if cell == "k-time" else [])
        self.browser.run(f"document.querySelector('tr[data-index=\"{third}\"] button').click()")
        self.assertEqual(self.browser.run(opened), [third], "a click counts once")

    def test_a_filter_changes_the_roofline_and_moves_no_column(self):
        self.browser.open(self.page)
        points = "document.querySelectorAll('#roofline circle.point').length"
        heads = "[...document.querySelectorAll('.matrix th')].map(head => head.getBoundingClientRect().left)"
        drawn, places = self.browser.run(points), self.browser.run(heads)
        self.assertGreater(drawn, 20)
        self.filter("m=16 n=28672")
        self.assertEqual(self.browser.run(points), len(self.shown()))
        self.assertLess(len(self.shown()), drawn)
        self.assertEqual(self.browser.run(heads), places)
        self.filter("no such problem")
        self.assertEqual(self.browser.run(heads), places)
        self.assertIn("No problem matches", self.browser.run("document.querySelector('.matrix').innerText"))
        self.assertIn("can be drawn", self.browser.run("document.getElementById('roofline').innerText"))
        self.browser.run("document.querySelector('tr.none button').click()")
        self.browser.frame()
        self.assertEqual(self.browser.run(points), drawn)
        self.browser.run("document.querySelector('th.k-time button').click()")
        self.assertEqual(self.browser.run(points), drawn)

    def open_families(self, page=None):
        """Opens them all. Returns the names of the pictures of each."""
        self.browser.open(page or self.families)
        self.browser.run("document.querySelectorAll('.family').forEach(fold => { fold.open = true; })")
        self.browser.frame()
        return self.browser.run("""[...document.querySelectorAll('.family')].map(
            fold => [...fold.querySelectorAll('figure h3')].map(head => head.textContent))""")

    def test_families_are_drawn_with_all_their_sizes(self):
        families = self.data(self.families)["families"]
        names = self.open_families()
        self.assertEqual(len(names), len(families))
        self.assertGreater(len(families), 3)
        marks = self.browser.run("""[...document.querySelectorAll('.family')].map(fold => [...fold.querySelectorAll('figure svg')].map(
            svg => svg.querySelectorAll('.point, .hollow').length))""")
        bands = self.browser.run("[...document.querySelectorAll('.family')].map(fold => fold.querySelectorAll('svg .column').length)")
        for family, pictures, drawn, band in zip(families, names, marks, bands):
            served = [row for row in family["rows"] if "kernel" in row]
            first = family["ranges"][0][0]
            with self.subTest(family=family["problem"]):
                self.assertEqual(drawn, [len(served)] * len(pictures))
                self.assertGreater(len(served), 30)
                if len(family["ranges"]) == 1:
                    self.assertEqual(pictures, [f"Time by {first}", f"Regret by {first}"])
                    self.assertEqual(family["bands"][0][0], family["ranges"][0][1])
                    sizes = [size for size, _ in family["bands"]]
                    self.assertEqual(sizes, sorted(set(sizes)))
                    self.assertEqual(band, sum(kernel is not None for _, kernel in family["bands"]))
                    self.assertGreater(len(family["roofline"]), 50)
                else:
                    self.assertEqual(pictures, ["Time by roofline", f"Kernels by {first} and {family['ranges'][1][0]}", f"Regret by {first}"])
                    letters = set("".join(family["map"]["cells"])) - {"."}
                    self.assertLessEqual(letters, {chr(65 + i) for i in range(len(family["kernels"]))})
                    self.assertGreater(len(letters), 3)
                for row in served:
                    us = row["us"][row["kernel"]]
                    self.assertAlmostEqual(us / row["best_us"] - 1, row["regret"], delta=2e-3)
                    self.assertGreater(us, 0.8 * row["roofline_us"])
                self.assertEqual(sum("validation" in row for row in family["rows"]), family["regret"]["sizes"])

    def test_a_family_is_found_by_keyboard_and_has_its_tables(self):
        self.open_families()
        tables = self.browser.run("""[...document.querySelectorAll('.family .behind')].map(fold => {
            fold.open = true; fold.dispatchEvent(new Event('toggle')); return fold.querySelectorAll('tbody tr').length })""")
        self.assertGreater(len(tables), 8)
        self.assertGreater(min(tables), 3)
        nameless = self.browser.run("""[...document.querySelectorAll('#families summary, #families [role=img]')]
            .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim())).length""")
        self.assertEqual(nameless, 0)
        self.browser.run("document.querySelector('.family .picture').focus()")
        self.browser.press("ArrowRight")
        self.assertRegex(self.browser.run("document.getElementById('tip').textContent"), r"=1 .*by kernel \d+")
        self.browser.press("Escape")

    def test_families_are_no_wider_than_the_window(self):
        for width in (360, 1000, 1900):
            with self.subTest(width=width):
                self.browser.view(width)
                self.open_families()
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)

    def test_a_single_family_is_open_and_a_file_is_enough(self):
        page = self.folder / "family.html"
        file = next((self.folder / "families").rglob("*.kwf"))
        subprocess.run([KERNWRIGHT, "report", file, "-o", page], check=True, stdout=subprocess.DEVNULL)
        self.browser.open(page)
        self.assertTrue(self.browser.run("document.querySelector('.family').open"))
        self.assertGreater(self.browser.run("document.querySelectorAll('.family figure svg').length"), 1)
        self.assertIn("..", self.browser.run("document.querySelector('h1').textContent"))

    def test_a_worklist_of_ranges_names_its_families(self):
        family = self.data(self.families)["families"][0]["problem"]
        listed, page = self.folder / "ranges.json", self.folder / "ranges.html"
        missing = "rmsnorm rows=1..77 columns=640 dtype=bf16"
        listed.write_text(json.dumps({"problems": [missing, family]}))
        subprocess.run([KERNWRIGHT, "report", listed, "--cache", self.folder / "families", "-o", page], check=True, stdout=subprocess.DEVNULL)
        data = self.data(page)
        self.assertEqual([one["problem"] for one in data["families"]], [family])
        self.assertEqual([one["problem"] for one in data["missing"]], [missing])
        self.browser.open(page)
        self.assertEqual(self.browser.run("document.querySelector('.tally').textContent"), "1 of 2 problems has a record")

    def test_a_margin_never_reads_as_certain(self):
        data = self.data()
        margins = ([-0.003, -0.02, 0.01], [0.0001, -0.0002, 0.0003], [0, 0, 0], None)
        for problem, margin in zip(data["problems"], margins):
            problem["grade"] = "measured"
            problem["margin"] = margin
        self.browser.open(self.with_data("margins", data))
        texts = [self.browser.run(f"document.querySelector('tr[data-index=\"{i}\"] .k-margin').textContent")
                 for i in range(len(margins))]
        self.assertEqual(texts, ["−0.3\u00a0%−2.0 – 1.0", "0.01\u00a0%−0.02 – 0.03",
                                 "0.0\u00a0%alike in all rounds", "not compared"])

    def test_every_finalist_is_told_apart(self):
        data = self.data()
        first = data["problems"][0]
        long = " ".join(f"PARAMETER_{i}={i}" for i in range(12))
        for i, finalist in enumerate(first["finalists"][1:]):
            finalist["differs"] = f"stream {long} LAST={i}"
        page = self.with_data("long", data)
        for width in (390, 1280):
            self.browser.view(width)
            self.browser.open(page)
            self.browser.run("document.querySelector('tr[data-index=\"0\"] button').click()")
            self.browser.frame()
            text = self.browser.run("""[...document.querySelectorAll('tr.detail figure')[0].querySelectorAll('text.config')]
                .map(text => text.textContent).join(' ')""")
            for i in range(len(first["finalists"]) - 1):
                self.assertIn(f"LAST={i}", text.split())
            over = self.browser.run("""[...document.querySelectorAll('tr.detail figure')[0].querySelectorAll('text')]
                .filter(text => text.getBoundingClientRect().right > innerWidth).length""")
            self.assertEqual(over, 0)

    def test_the_best_launch_path_is_said_with_its_reason(self):
        data = self.data()
        data["problems"][0].update(best_path="graph", best_path_words="graph: as the times have it",
                                   launch_paths=[["stream", 5, 12], ["graph", 1, 10]])
        self.browser.open(self.with_data("paths", data))
        self.browser.run("document.querySelector('tr[data-index=\"0\"] button').click()")
        self.assertIn("Best by graph: as the times have it.", self.browser.run("document.querySelector('tr.detail').textContent"))

    def test_names_of_the_roofline_lie_on_nothing(self):
        apart = """(() => {
            const along = text => {
                const matrix = text.getCTM(), count = text.getNumberOfChars(), points = [];
                for (let i = 0; i < count; ++i) points.push(text.getStartPositionOfChar(i).matrixTransform(matrix));
                return points;
            };
            const all = [...document.querySelectorAll('#roofline svg text')].map(along);
            let least = Infinity;
            all.forEach((one, i) => all.slice(i + 1).forEach(other => one.forEach(a => other.forEach(b => {
                least = Math.min(least, Math.hypot(a.x - b.x, a.y - b.y)) }))));
            return least })()"""
        data = self.data()
        for i, problem in enumerate(data["problems"]):
            problem["operation"] = f"operation_{i}"
        data["problems"] = data["problems"][:17]
        data["signs"] = []
        few = self.with_data("few", data)
        for page in (self.page, few):
            for width in (390, 1440):
                with self.subTest(page=page.name, width=width):
                    self.browser.view(width)
                    self.browser.open(page)
                    self.assertGreater(self.browser.run(apart), 8)
        names = self.browser.run("[...document.querySelectorAll('#roofline svg text')].map(text => text.textContent)")
        self.assertGreater(len([name for name in names if name.startswith("operation_")]), 5)

    def test_colours_go_to_what_takes_longest(self):
        data = self.data()
        for i, problem in enumerate(data["problems"]):
            problem["operation"], problem["us"] = f"operation_{i:02d}", 1 + i
        self.browser.open(self.with_data("colours", data))
        names = self.browser.run("[...document.querySelectorAll('#roofline .legend li')].map(one => one.textContent)")
        self.assertEqual(names, [f"operation_{i}" for i in (29, 28, 27, 26, 25)] + ["others"])

    def test_the_audit_has_the_width_of_a_phone(self):
        self.browser.view(390)
        self.browser.open(self.single)
        self.browser.run("document.querySelectorAll('.evidence details').forEach(fold => { fold.open = true; })")
        self.browser.frame()
        wide = self.browser.run("""(() => {
            const table = document.querySelector('.audit').getBoundingClientRect();
            return [...document.querySelectorAll('.audit td:last-child')].map(cell => cell.getBoundingClientRect().width / table.width) })()""")
        self.assertGreater(len(wide), 2)
        self.assertGreater(min(wide), 0.95)

    def test_on_paper_pictures_have_the_size_of_the_text(self):
        self.browser.view(718)
        self.browser.page.emulate_media(media="print")
        self.addCleanup(self.browser.page.emulate_media, media="screen")
        self.browser.open(self.page)
        self.browser.run("document.querySelector('button.open').click()")
        self.browser.frame()
        self.browser.run("dispatchEvent(new Event('beforeprint'))")
        sizes = self.browser.run("""[...document.querySelectorAll('.picture > svg')].map(
            svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)""")
        self.assertGreater(len(sizes), 3)
        for size in sizes:
            self.assertTrue(0.95 < size < 1.05, sizes)
        self.assertEqual(self.browser.run("getComputedStyle(document.querySelector('.matrix > thead')).display"),
                         "table-row-group", "it is not repeated above parts of a problem")
        self.browser.run("dispatchEvent(new Event('afterprint'))")

    def test_what_was_not_drawn_is_no_card(self):
        data = self.data()
        data["problems"][0]["trials"] = {"missing": "the bundle has none"}
        self.browser.open(self.with_data("bundle", data))
        self.browser.run("document.querySelector('tr[data-index=\"0\"] button').click()")
        names = self.browser.run("[...document.querySelectorAll('tr.detail h3')].map(head => head.textContent)")
        self.assertEqual(names, ["Race", "Samples and clock", "Launch paths", "Evidence"])
        self.assertIn("the bundle has none", self.browser.run("document.querySelector('.evidence').textContent"))

    def test_equal_changes_stand_in_natural_order(self):
        data = self.data()
        sizes = (4096, 5120, 512)
        for problem, n in zip(data["problems"], sizes):
            problem["problem"] = f"matmul m=1 n={n} k=1 dtype=bf16"
        rows = [{"index": i, "change": "equal", "slowdown": [0, 0, 0], "before_us": 1, "after_us": 1, "before": "a",
                 "same_choice": True} for i in range(len(sizes))]
        data["compare"] = {"name": "before", "rows": rows, "only_before": 0, "only_after": 0}
        self.browser.open(self.with_data("natural", data))
        texts = self.browser.run("[...document.querySelectorAll('#compare tbody th')].map(head => head.textContent)")
        self.assertEqual(texts, [f"matmul m=1 n={n} k=1 dtype=bf16" for n in sorted(sizes)])

    def test_every_picture_has_its_table(self):
        self.browser.open(self.single)
        rows = self.browser.run("""[...document.querySelectorAll('figure')].map(figure => {
            const fold = figure.querySelector('details.behind');
            if (!fold) return [figure.querySelector('h3').textContent, 0];
            fold.open = true; fold.dispatchEvent(new Event('toggle'));
            return [figure.querySelector('h3').textContent, fold.querySelectorAll('tbody tr').length]})""")
        self.assertGreater(len(rows), 5)
        for name, count in rows:
            self.assertGreater(count, 0, name)

    def test_nothing_is_wider_than_the_window(self):
        for width in (360, 700, 1000, 1280, 1900):
            with self.subTest(width=width):
                self.browser.view(width)
                self.browser.open(self.page)
                self.browser.run("document.querySelector('button.open').click()")
                self.browser.frame()
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)

    def test_two_caches_are_compared(self):
        page = self.report("again", 20, "--compare", self.folder / "many")
        self.browser.open(page)
        self.assertEqual(self.browser.run("document.querySelectorAll('#compare tbody tr').length"), 20)
        lead = self.browser.run("document.querySelector('#compare .lead').textContent")
        self.assertIn("10 problems are only in many", lead)
        self.browser.run("document.querySelectorAll('#compare tbody button')[3].click()")
        self.browser.frame()
        self.assertEqual(self.browser.run("document.querySelectorAll('tr.detail').length"), 1)

    def refusal(self, *arguments):
        """The message of a report that is not made."""
        page = self.folder / "refused.html"
        ran = subprocess.run([KERNWRIGHT, "report", *arguments, "-o", page], check=False, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((ran.returncode, page.exists()), (1, False), ran.stdout)
        return ran.stderr

    def test_nothing_to_show_or_to_compare_with_is_refused(self):
        nothing = self.folder / "nothing"
        nothing.mkdir(exist_ok=True)
        self.assertIn(f"no record in {nothing} to compare with",
                      self.refusal(self.folder / "single", "--compare", nothing))
        listed = self.folder / "list.json"
        listed.write_text(json.dumps({"problems": ["vector_add n=8 dtype=bf16"]}))
        self.assertIn("no record of 1 problem in", self.refusal(listed, "--cache", nothing))

    def test_a_worklist_names_its_problems_without_records(self):
        listed, page = self.folder / "list.json", self.folder / "list.html"
        listed.write_text(json.dumps({"problems": ["vector_add n=8 dtype=bf16", PROBLEM]}))
        subprocess.run([KERNWRIGHT, "report", listed, "--cache", self.folder / "single", "-o", page], check=True, stdout=subprocess.DEVNULL)
        self.browser.open(page)
        self.assertEqual(self.browser.run("document.querySelector('.tally').textContent"),
                         "1 of 2 problems has a record")
        self.assertIn("vector_add n=8 dtype=bf16", self.browser.run("document.querySelector('header details').textContent"))
        self.assertEqual(self.browser.run("document.querySelectorAll('.distribution').length"), 3)

    def test_what_is_focused_or_read_out_has_a_name(self):
        self.browser.open(self.single)
        self.browser.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; fold.dispatchEvent(new Event('toggle')); })")
        self.browser.frame()
        nameless = self.browser.run("""[...document.querySelectorAll('button, select, input, summary, [role=img], [tabindex="0"]')]
            .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || (one.labels && one.labels.length)))
            .map(one => one.outerHTML.slice(0, 80))""")
        self.assertEqual(nameless, [])
        names = self.browser.run("[...document.querySelectorAll('.behind > summary')].map(one => one.textContent)")
        self.assertEqual(len(names), len(set(names)), "each table is told apart")

    def test_every_axis_has_two_ticks(self):
        for width in (360, 1280):
            self.browser.view(width)
            self.browser.open(self.single)
            few = self.browser.run("""[...document.querySelectorAll('figure')].filter(figure =>
                [...figure.querySelectorAll('svg line.grid')].filter(line => line.getAttribute('x1') === line.getAttribute('x2')).length < 2)
                .map(figure => figure.querySelector('h3').textContent)""")
            self.assertEqual(few, [])

    def test_it_prints(self):
        self.browser.open(self.single)
        self.assertTrue(self.browser.printed().startswith(b"%PDF"))

    def test_one_problem_takes_few_bytes(self):
        self.assertLess(self.single.stat().st_size, 300_000)

    def test_pictures_of_fixed_families_are_as_they_were(self):
        data = self.data(self.families) | {"families": json.loads((DATA / "families.json").read_text())}
        page = self.with_data("fixed_families", data)
        for dark in (False, True):
            self.browser.view(1000, dark=dark)
            self.open_families(page)
            self.draw_plainly()
            names = self.browser.run("[...document.querySelectorAll('.family figure h3')].map(head => head.textContent)")
            self.assertEqual(len(names), 5)
            for i, name in enumerate(names):
                file = "family-" + "-".join(name.lower().split()) + ("-dark" if dark else "") + ".png"
                self.compare(file, f"document.querySelectorAll('.family figure .picture > svg')[{i}]")

    def draw_plainly(self):
        """One picture below the other, of the same width whatever the fonts do, and no text."""
        self.browser.run("document.querySelectorAll('.grid').forEach(grid => { grid.style.gridTemplateColumns = 'minmax(0, 1fr)'; })")
        self.browser.run("document.querySelectorAll('.picture').forEach(place => { place.style.width = '600px'; })")
        self.browser.frame()
        self.browser.run("document.querySelectorAll('svg text').forEach(text => text.setAttribute('visibility', 'hidden'))")

    def test_pictures_of_fixed_data_are_as_they_were(self):
        data = json.loads((DATA / "data.json").read_text())
        page = self.with_data("fixed", data)
        for dark in (False, True):
            self.browser.view(1000, dark=dark)
            self.browser.open(page)
            self.browser.run("document.querySelector('tr[data-index=\"0\"] button.open').click()")
            self.draw_plainly()
            names = self.browser.run("[...document.querySelectorAll('figure h3')].map(head => head.textContent)")
            self.assertGreater(len(names), 5)
            for i, name in enumerate(names):
                file = "-".join(name.lower().split()) + ("-dark" if dark else "") + ".png"
                self.compare(file, f"document.querySelectorAll('figure .picture > svg')[{i}]")

    def compare(self, file, element):
        """Holds the picture of an element against the one that is kept, or keeps it."""
        with self.subTest(picture=file):
            box = self.browser.run(f"""(() => {{
                const box = {element}.getBoundingClientRect();
                return {{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height}} }})()""")
            picture = self.browser.picture(box)
            if golden := os.environ.get("KERNWRIGHT_GOLDEN"):
                (pathlib.Path(golden) / file).write_bytes(picture)
                return
            self.assertTrue((DATA / file).exists(), "CONTRIBUTING.md says how to make it")
            share = difference(picture, (DATA / file).read_bytes())
            self.assertLessEqual(share, SHARE_TOLERANCE, "CONTRIBUTING.md says how to accept it")

    def test_pictures_of_a_record_are_as_they_were(self):
        """As a notebook shows it on a light and on a dark page, and as a file for a text."""
        race = self.folder / "race.svg"
        subprocess.run([KERNWRIGHT, "show", *PROBLEM.split(), "--cache", CACHE, "--sku", "h200", "--svg", race],
                       check=True, stdout=subprocess.DEVNULL)
        shown = self.folder / "record.html"
        for dark in (False, True):
            end = "-dark.png" if dark else ".png"
            colours = "background: #111; color: #ddd" if dark else "background: #fff; color: #222"
            shown.write_text(f"<!doctype html><meta charset='utf-8'><body style='{colours}'>{card(CACHE, PROBLEM)}")
            self.browser.view(1000, dark=dark)
            for page, name in ((shown, "record"), (race, "race-alone")):
                self.browser.open(page)
                self.assertGreater(self.browser.run("document.querySelectorAll('text').length"), 20)
                self.browser.run("document.querySelectorAll('svg text').forEach(text => text.setAttribute('visibility', 'hidden'))")
                self.compare(name + end, "document.querySelector('svg')")
        self.assertEqual(set(self.browser.requests), {page.as_uri() for page in (shown, race)})

    def test_the_card_of_a_record_is_no_wider_than_its_page(self):
        shown = self.folder / "card.html"
        shown.write_text(f"<!doctype html><meta charset='utf-8'>{card(CACHE, PROBLEM)}")
        for width in (360, 1000):
            self.browser.view(width)
            self.browser.open(shown)
            self.browser.run("document.querySelector('details').open = true")
            self.browser.frame()
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            letters = self.browser.run("[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)")
            self.assertGreater(min(letters), 10)

    def test_pictures_that_differ_are_told_apart(self):
        files = sorted(DATA.glob("*.png"))
        race, landscape = (DATA / name for name in ("race.png", "landscape.png"))
        self.assertIn(race, files)
        self.assertEqual(difference(race.read_bytes(), race.read_bytes()), 0)
        self.assertEqual(difference(race.read_bytes(), landscape.read_bytes()), 1)
        self.assertGreater(difference(race.read_bytes(), (DATA / "race-dark.png").read_bytes()), 0.5)


if __name__ == "__main__":
    if missing := Browser.missing():
        print(f"{missing} here (setup.sh --browser installs it): reports are not looked at")
        sys.exit(77)
    KERNWRIGHT, SAMPLES, LIBRARY = sys.argv[1:4]
    sys.exit(unittest.main(argv=sys.argv[:1] + sys.argv[4:]))
