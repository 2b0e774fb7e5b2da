#!/usr/bin/env python3
"""The makers of the site of the documents: links, references, and the look at what was built."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "src/docs/site"
sys.path[:0] = [str(SITE), str(pathlib.Path(__file__).resolve().parent)]
import documents  # noqa: E402
from browser import Browser  # noqa: E402
import link_check  # noqa: E402
import operations  # noqa: E402
import python_names  # noqa: E402


class DocumentsTest(unittest.TestCase):
    def test_documents_of_the_repository_are_pages(self):
        self.assertEqual(documents.page_of("README.md"), "index.md")
        self.assertEqual(documents.page_of("src/docs/pages/reference/c.md"), "reference/c.md")
        self.assertEqual(documents.page_of("templates/matmul/tiled/README.md"), "operations/matmul/tiled.md")
        self.assertEqual(documents.page_of("templates/matmul/tiled/NOTES.md"), "operations/matmul/tiled/notes.md")
        self.assertIsNone(documents.page_of("src/examples/soft_cap.cu"))

    def test_every_document_is_one_page_and_each_page_is_of_one(self):
        pages = [documents.page_of(path) for path in documents.documents()]
        self.assertEqual(len(pages), len(set(pages)))
        for path in documents.documents():
            self.assertTrue((ROOT / path).is_file(), path)

    def test_every_document_is_reached(self):
        listed = set(documents.documents())
        tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md", ":!.github"], text=True, check=False,
                                 stdout=subprocess.PIPE).stdout.split()
        self.assertEqual([path for path in tracked
                          if path not in listed and not path.startswith(documents.PAGES)], [])

    def test_links_lead_to_pages_and_to_files(self):
        def linked(target, path="tuner/README.md"):
            return documents.with_links_of_site(f"a [link]({target}) here", path)

        self.assertEqual(linked("../templates/README.md#draws"), "a [link](../reference/templates.md#draws) here")
        self.assertEqual(linked("audit/audit.cpp"), "a [link](../files/tuner/audit/audit.cpp) here")
        self.assertEqual(linked("concepts.md", "src/docs/pages/tuning.md"), "a [link](concepts.md) here")
        for kept in ("#samples", "https://example.org/x"):
            self.assertEqual(linked(kept), f"a [link]({kept}) here")

    def test_code_has_no_links(self):
        for text in ("`[a](b.md)`", "```cpp\nf[i](x)\n```"):
            self.assertEqual(documents.with_links_of_site(text, "README.md"), text)


class PythonNamesTest(unittest.TestCase):
    def test_what_a_reference_lacks_is_found(self):
        lacking = python_names.missing('<h3 id="kernwright.linear">')
        self.assertNotIn("kernwright.linear", lacking)
        self.assertIn("kernwright.attention", lacking)
        self.assertIn("kernwright.torch.linear", lacking)

    def test_a_module_that_offers_nothing_is_an_error(self):
        self.assertEqual(python_names.offered("__all__ = ['a']"), ["a"])
        with self.assertRaises(ValueError):
            python_names.offered("a = 1")


class LinkCheckTest(unittest.TestCase):
    def wrong(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in pages.items():
                (pathlib.Path(folder) / f"{name}.html").write_text(text)
            return link_check.check(pathlib.Path(folder))

    def test_links_that_lead_somewhere_are_right(self):
        self.assertEqual(self.wrong(a='<a href="b.html#x">b</a> <a href="https://example.org">c</a>',
                                    b='<h2 id="x">x</h2>'), [])

    def test_missing_files_and_places_are_named(self):
        self.assertIn("a.html links to c.html", self.wrong(a='<a href="c.html">c</a>')[0])
        self.assertIn("a.html links to b.html#y", self.wrong(a='<a href="b.html#y">b</a>', b="<p id=x>")[0])

    def test_nothing_is_loaded_from_elsewhere(self):
        for tag in ('<script src="https://example.org/x.js"></script>', '<img src="//example.org/x.png">',
                    '<link rel="stylesheet" href="https://example.org/x.css">'):
            self.assertIn("from elsewhere", self.wrong(a='<a href="a.html">a</a>' + tag)[0])

    def test_a_site_without_links_was_not_read(self):
        self.assertEqual(self.wrong(a="<p>nothing</p>"), ["no page has a link"])


@unittest.skipIf(Browser.missing(), Browser.missing())
class SearchTest(unittest.TestCase):
    """The search of the site runs in a worker, which no browser starts from a disk."""

    def test_a_worker_runs_from_a_disk(self):
        with tempfile.TemporaryDirectory() as folder, Browser() as browser:
            folder = pathlib.Path(folder)
            shim = (SITE.parent / "pages/iframe-worker.js").read_text()
            (folder / "page.html").write_text(f"<!doctype html><body><script>{shim}</script>")
            (folder / "part.js").write_text("var part = 'with a part';")
            (folder / "worker.js").write_text(
                "addEventListener('message', async event => { await importScripts('part.js');"
                "  postMessage(event.data + ' ' + part) })")
            browser.open(folder / "page.html")
            said = browser.run("""new Promise(done => {
                const worker = new Worker('worker.js');
                worker.addEventListener('message', event => done(event.data));
                worker.postMessage('asked') })""")
            self.assertEqual(said, "asked with a part")


class OperationsTest(unittest.TestCase):
    def test_every_operation_has_all_that_it_takes(self):
        sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", operations.reference()))
        for path in ROOT.glob("templates/*/operation.json"):
            operation = json.loads(path.read_text())
            section = sections.pop(operation["operation"])
            for part in ("dims", "dtypes", "flags"):
                for name in operation.get(part, {}):
                    self.assertIn(f"| `{name}` |", section)
            for part in ("tensors", "scalars"):
                for each in operation.get(part, []):
                    self.assertIn(f"| `{each['name']}` |", section)
            for manifest in path.parent.glob("*/manifest.json"):
                self.assertIn(f"[{manifest.parent.name}](", section)
                for parameter in json.loads(manifest.read_text()).get("parameters", {}):
                    self.assertIn(f"`{parameter}`", section)
            for dim, each in operation["dims"].items():
                size = {"bucket": "a range", "exact": "one size"}[each["bind"]]
                self.assertIn(f"| `{dim}` | {size} |", section)
        self.assertEqual(sections, {})

    def test_every_profile_is_a_gpu(self):
        table = operations.gpus()
        for path in ROOT.glob("src/model/profiles/*.json"):
            self.assertIn(f"| `{path.stem}` |", table)


class FieldsTest(unittest.TestCase):
    def test_every_field_that_is_read_is_described(self):
        code = re.findall(r"(?ms)^```.*?^```$|`[^`]+`", (ROOT / "templates/README.md").read_text())
        described = set(re.findall(r"\w+", " ".join(code)))
        fields = set()
        for path in ROOT.glob("src/model/catalog/*.cpp"):
            text = path.read_text()
            fields |= set(re.findall(r"\.(?:required|optional)\(\"(\w+)\"\)", text))
            for keys in re.findall(r"expect_keys\(\{([^}]*)\}\)", text):
                fields |= set(re.findall(r"\"(\w+)\"", keys))
        fields |= set(re.findall(r"\{\"(\w+)\", &Demands::", (ROOT / "src/model/candidate/demands.cpp").read_text()))
        self.assertGreater(len(fields), 60)
        self.assertEqual(sorted(fields - described), [])


class HeadersTest(unittest.TestCase):
    """Needs the tools of `make docs`."""

    def reference(self, language):
        python = ROOT / "build/docs-tools/bin/python"
        if not python.exists():
            self.skipTest("no build/docs-tools: `make docs` installs it")
        return subprocess.run([python, "-B", "-c", f"import headers; print(headers.reference({language!r}))"],
                              cwd=SITE, text=True, check=True, stdout=subprocess.PIPE).stdout

    def test_every_function_of_the_c_interface_is_listed(self):
        text = (ROOT / "src/kernwright/c.h").read_text()
        functions = set(re.findall(r"(?m)^[a-z][\w *]*?\b(kw_\w+)\(", text))
        self.assertGreater(len(functions), 30)
        reference = self.reference("c")
        for function in functions:
            self.assertRegex(reference, rf"(?m)^[a-z][\w *]*\b{function}\(")

    def test_classes_have_their_comments_and_members(self):
        reference = self.reference("cpp")
        for part in ("### class `Service`\n\nProvides tuned kernels for one device.",
                     "```cpp\nResult<Kernel> tune(const Problem& problem, const TuneOptions& options = {});\n```",
                     "### enum `Match`",
                     "| `int device = 0` | The GPU, by the driver's number. |"):
            self.assertIn(part, reference)
        self.assertLess(reference.index("class `Service`"), reference.index("struct `TuneProgress`"))
        for hidden in ("core_", "KERNWRIGHT_API", "///"):
            self.assertNotIn(hidden, reference)


if __name__ == "__main__":
    unittest.main()
