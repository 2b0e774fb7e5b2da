#!/usr/bin/env python3
"""snippets_rules_test.py BUILD: snippets_test.py finds what is wrong in a document."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import snippets_test

HERE = pathlib.Path(__file__).resolve().parent
BUILD = sys.argv.pop(1)


class SnippetsTest(unittest.TestCase):
    def read(self, document, *options):
        """Returns whether all of a document is right, and what is said about it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "document.md"
            path.write_text(document)
            ran = subprocess.run([sys.executable, "-B", HERE / "snippets_test.py", *options, BUILD,
                                  HERE.parents[1], path], text=True, check=False, stdout=subprocess.PIPE)
            if ran.returncode == 77:
                self.skipTest(ran.stdout)
            self.document = path.read_text()
            return ran.returncode == 0, ran.stdout

    def assert_wrong(self, document, why):
        right, said = self.read(document)
        self.assertFalse(right, said)
        self.assertIn(why, said)

    def assert_right(self, document):
        right, said = self.read(document)
        self.assertTrue(right, said)

    def test_commands_run(self):
        self.assert_right("```sh\nkernwright operations vector_add\n```\n")
        self.assert_wrong("```sh\nkernwright operations vector_sub\n```\n", "vector_sub")

    def test_commands_that_do_not_run_are_looked_up(self):
        marker = "<!-- parsed only: needs a GPU -->\n"
        self.assert_right(f"{marker}```sh\nkernwright tune vector_add n=4 dtype=bf16 --seconds 9  # now\n```\n")
        self.assert_wrong(f"{marker}```sh\nkernwright tune vector_add n=4 dtype=bf16 --second 9\n```\n", "no --second")
        self.assert_wrong(f"{marker}```sh\nkernwright tune vector_add m=4 dtype=bf16\n```\n", "vector_add")
        self.assert_wrong(f"{marker}```sh\nmake coffee\n```\n", "no make coffee")

    def test_what_commands_print_is_compared(self):
        self.assert_right("```console\n$ echo one\none\n$ echo two\ntwo\n```\n")
        self.assert_wrong("```console\n$ echo one\ntwo\n```\n", "`make golden`")
        self.assert_wrong("```console\n$ false\n```\n", "exits with 1")
        self.assert_right("```console\n$ echo predicted 2026-01-02T03:04:05Z\npredicted 2025-01-02T03:04:05Z\n```\n")

    def test_an_update_writes_what_they_print(self):
        right, said = self.read("before\n\n```console\n$ echo one\ntwo\n```\n\n```console\n$ echo x\n```\n", "--update")
        self.assertTrue(right, said)
        self.assertEqual(self.document,
                         "before\n\n```console\n$ echo one\none\n```\n\n```console\n$ echo x\nx\n```\n")

    def test_indented_commands_are_read_too(self):
        self.assert_right("It prints:\n\n    $ echo one\n    one\n\nAnd so on.\n")
        right, said = self.read("It prints:\n\n    $ echo one\n    two\n\nAnd so on.\n", "--update")
        self.assertTrue(right, said)
        self.assertEqual(self.document, "It prints:\n\n    $ echo one\n    one\n\nAnd so on.\n")
        self.assert_wrong("Tune:\n\n    kernwright tune vector_add n=4 dtype=bf16 --second 9\n", "no --second")
        self.assert_right("Decode:\n\n    kernwright_decode --config FILE --seconds 1\n")
        self.assert_wrong("Decode:\n\n    kernwright_decode --config FILE --second 1\n", "has no --second")

    def test_blocks_with_a_gpu_are_looked_up_without_one(self):
        marker = "<!-- with a GPU -->\n"
        self.assert_right(f"{marker}```sh\nkernwright tune vector_add n=4096 dtype=bf16 --seconds 1\n```\n")
        self.assert_wrong(f"{marker}```sh\nkernwright tune vector_add n=4096 dtype=bf16 --second 1\n```\n", "--second")
        shell, python = snippets_test.blocks_of(f"{marker}```sh\n```\n\n{marker}```python\n```\n")
        self.assertEqual(snippets_test.lacking(shell, False, False), "there is no GPU")
        self.assertIsNone(snippets_test.lacking(shell, True, False))
        self.assertEqual(snippets_test.lacking(python, True, False), "there is no PyTorch")
        self.assertIsNone(snippets_test.lacking(python, True, True))
        self.assertIsNone(snippets_test.lacking(snippets_test.blocks_of("```sh\n```\n")[0], False, False))

    def test_commands_in_the_text_are_looked_up(self):
        self.assert_right("Run `kernwright tune PROBLEM\n--seconds 9`, `kernwright tune matmul m=.. k=..`, `make test`.\n")
        self.assert_wrong("Run `kernwright tune PROBLEM --second 9`.\n", "no --second")
        self.assert_wrong("Run `kernwright tuna`.\n", "no kernwright tuna")
        self.assert_wrong("one\n\n`kernwright tune vector_add m=4`\n", "document.md:3: ")
        self.assert_wrong("Have `make coffee`.\n", "no make coffee")
        self.assert_right("```text\nkernwright tuna\n```\n\n`kernwright operations`\n")

    def test_blocks_share_their_files(self):
        self.assert_right("`a/b.json`\n\n```json\n{}\n```\n\n```sh\ntest -f a/b.json\n```\n")

    def test_code_compiles(self):
        self.assert_right("```cpp\n#include <kernwright/kernwright.h>\nint main() {}\n```\n")
        self.assert_wrong("```cpp\n#include <kernwright/kernwright.h>\nkernwright::Kernels all;\n```\n", "Kernels")
        self.assert_right("```c\n#include <kernwright/c.h>\n```\n")
        self.assert_right("<!-- given: cpp\nint twice(int x) {\n...\n}\n-->\n```cpp\nreturn 2 * x;\n```\n")
        self.assert_wrong("<!-- given: cpp\nint twice(int x) {\n...\n}\n-->\n```cpp\nreturn 2 * y;\n```\n", "y")

    def test_json_parses_also_in_parts(self):
        self.assert_right('```json\n"a": 1\n```\n\n```json\n{"b": 2}, {"c": 3}\n```\n')
        self.assert_wrong('```json\n{"a": }\n```\n', "no JSON")

    def test_python_uses_what_there_is(self):
        if not list(pathlib.Path(BUILD, "python/kernwright").glob("_kernwright*.so")):
            self.skipTest("the build has no Python package")
        marker = "<!-- parsed only: needs a GPU -->\n"
        self.assert_right(f"{marker}```python\nimport kernwright as kw\nkw.linear(x, w, activation='silu')\n```\n")
        self.assert_wrong(f"{marker}```python\nimport kernwright as kw\nkw.lineal(x, w)\n```\n", "has no lineal")
        self.assert_wrong(f"{marker}```python\nimport kernwright as kw\nkw.linear(x, w, active='silu')\n```\n", "active")
        self.assert_wrong(
            f"{marker}```python\nimport kernwright as kw\ns = kw.Service(sku='h200')\ns.coffee('x')\n```\n", "has no coffee")
        self.assert_right(f"{marker}```python\nimport kernwright.torch\nkernwright.torch.patch(m)\n```\n")
        self.assert_wrong(f"{marker}```python\nimport kernwright.torch\nkernwright.torch.path(m)\n```\n", "no path")
        self.assert_wrong("```python\nimport kernwright as kw\nkw.Service(sku='h9000')\n```\n", "h9000")

    def test_every_language_has_a_rule(self):
        self.assert_wrong("```mermaid\nflowchart LR\n```\n", "no rule")
        self.assert_wrong("```cuda\n__global__ void f() {}\n```\n", "is no file")

    def test_a_run_without_blocks_is_wrong(self):
        self.assert_wrong("nothing\n", "0 blocks and commands")


if __name__ == "__main__":
    unittest.main()
