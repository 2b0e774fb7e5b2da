#!/usr/bin/env python3
"""Every fenced block of the documents does what it says, and most of them do so without a GPU.

    snippets_test.py [--update] BUILD SOURCE [DOCUMENT...]

The language of a block says what is done with it, in a folder that all blocks of a document share:

    sh        its commands run
    console   the commands behind `$ ` run, and print what stands below them to their standard output;
              with --update the document gets what they print
    cpp, c    it compiles, without a warning
    python    it runs, where the build has the Python package
    json      it parses
    cuda      it is a file that a command uses
    text      nothing

A block that is indented is of a console where it begins with `$ `, and has commands that are looked up
and do not run where it begins with one of kernwright, kernwright_decode or make.

A command of kernwright or make in backquotes, within the text, is looked up too.

A path in backquotes as the last line before a block makes a file of it. Comments before a block say what
a reader does not need to see:

    <!-- parsed only: WHY -->       nothing runs; commands, options, problems and names are those there are
    <!-- with a GPU -->             it runs where there is a GPU, and for Python PyTorch; elsewhere as above
    <!-- given: FILE is PATH -->    a file of the source that the commands need
    <!-- given: FILE TEXT -->       a file that they need, by its text from the next line on
    <!-- given: cpp CODE -->        what stands around a block, in place of a line `...`
"""

import argparse
import ast
import importlib.util
import inspect
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from typing import List, NamedTuple, Optional

from toolkit import has_gpu, skip_without_compiler

LANGUAGES = {"sh", "console", "cpp", "c", "python", "json", "cuda", "text"}
# What another minute, machine or version prints instead.
VARYING = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "DATE"),
    (r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{16}", "RUN"),
    (r"nvrtc \d+\.\d+", "nvrtc VERSION"),
    (r"kernwright \d+\.\d+\.\d+( \(\w+\))?", "kernwright VERSION"),
    (r"(?m)^  time +\d.*$", "  time      SECONDS"),
    (r"(?m)^(kernwright_compile_seconds_total) .*$", r"\1 SECONDS"),
    (r"at most about .* left", "at most about SECONDS left"),
]


class Block(NamedTuple):
    line: int               # of its first line of text, from 0
    language: str
    text: str
    file: Optional[str]     # the path that it is written to
    parsed_only: bool
    given: List[str]
    indent: str = ""
    with_gpu: bool = False


INDENT = "    "
INDENTED = {"$ ": "console", "kernwright ": "sh", "kernwright_decode ": "sh", "make ": "sh"}


class Failure(Exception):
    pass


def blocks_of(document):
    """The fenced blocks of a document in order."""
    found, comments, before = [], [], ""
    lines = document.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("<!--"):
            end = next(i for i in range(at, len(lines)) if lines[i].rstrip().endswith("-->"))
            comments.append("\n".join(lines[at:end + 1])[4:-3].strip())
            at = end + 1
            continue
        if line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].rstrip() == "```")
            file = re.fullmatch(r"`([\w~./-]+)`", before)
            found.append(Block(
                at + 1, line[3:].strip(), "".join(each + "\n" for each in lines[at + 1:end]),
                file and file[1], any(each.startswith("parsed only: ") for each in comments),
                [each[len("given: "):] for each in comments if each.startswith("given: ")],
                with_gpu="with a GPU" in comments))
            at, comments, before = end + 1, [], ""
            continue
        begins = next((each for each in INDENTED if line.startswith(INDENT + each)), None)
        if begins and not (at and lines[at - 1].strip()):
            end = at
            while end < len(lines) and lines[end].startswith(INDENT):
                end += 1
            found.append(Block(
                at, INDENTED[begins], "".join(each[len(INDENT):] + "\n" for each in lines[at:end]), None,
                begins != "$ " or any(each.startswith("parsed only: ") for each in comments),
                [each[len("given: "):] for each in comments if each.startswith("given: ")], INDENT))
            at, comments, before = end, [], ""
            continue
        if line.strip():
            comments, before = [], line.strip()
        at += 1
    return found


def spans_of(document):
    """The commands that stand in the text, in backquotes, with their lines."""
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", lambda found: "\n" * found[0].count("\n"), document)
    return [(text.count("\n", 0, found.start()), found[1].replace("\n", " "))
            for found in re.finditer(r"`((?:kernwright|make)\s[^`]+)`", text)]


def lacking(block, gpu, torch):
    """What a block needs and is not here; None where it runs."""
    if block.with_gpu and not gpu:
        return "there is no GPU"
    if block.with_gpu and block.language == "python" and not torch:
        return "there is no PyTorch"
    return None


def lasting(text):
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text


class Reader:
    """Does what a document says, in folders of its own."""

    def __init__(self, build, source, folder):
        self.source, self.folder = source, folder
        self.tool = build / "bin" / "kernwright"
        self.package = build / "python"
        self.helps = {}
        self.home, self.place = folder / "home", folder / "work"
        programs = folder / "bin"
        for each in (self.home, self.place, programs):
            each.mkdir(parents=True)
        # What an installed kernwright.pc gives; tests/build/install_test.py looks at that one itself.
        shim = programs / "pkg-config"
        shim.write_text(f"#!/bin/sh\necho -I{source}/src -L{build}/lib -Wl,-rpath,{build}/lib -lkernwright\n")
        shim.chmod(0o755)
        self.environment = {
            **os.environ, "HOME": str(self.home), "PYTHONPATH": str(self.package),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": os.pathsep.join([str(programs), str(build / "bin"), os.environ["PATH"]])}
        for name in ("KERNWRIGHT_CACHE", "XDG_CACHE_HOME"):
            self.environment.pop(name, None)

    def has_package(self):
        return any((self.package / "kernwright").glob("_kernwright*.so"))

    def path(self, file):
        path = self.home / file[2:] if file.startswith("~/") else self.place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, *command, stderr=subprocess.STDOUT, **options):
        return subprocess.run([str(word) for word in command], cwd=self.place, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=stderr, check=False, **options)

    def shell(self, command, **options):
        return self.run("bash", "-euo", "pipefail", "-c", command, **options)

    def read(self, block):
        """Does what the block asks for; returns its text as it should be, or why it was skipped."""
        if block.language not in LANGUAGES:
            raise Failure(f"no rule for a block of the language {block.language!r}")
        around = "..."
        for given in block.given:
            file = re.fullmatch(r"([\w.-]+) is (\S+)", given)
            name, _, content = given.partition("\n")
            if file:
                shutil.copy(self.source / file[2], self.path(file[1]))
            elif "." in name:
                self.path(name).write_text(content + "\n")
            else:
                around = content + "\n"
        if block.file:
            self.path(block.file).write_text(block.text)
        text = block.text
        if around != "...":
            before, line, after = around.partition("...\n")
            if not line:
                raise Failure("what is given has no line `...`")
            text = before + text + after
        return getattr(self, block.language)(block, text)

    def text(self, _block, _text):
        pass

    def cuda(self, block, _text):
        if not block.file:
            raise Failure("a block of CUDA is no file: no path in backquotes stands before it")

    def json(self, _block, text):
        for form in ("%s", "{%s}", "[%s]"):  # an excerpt may be fields or elements
            try:
                json.loads(form % text)
                return
            except json.JSONDecodeError as error:
                last = error
        raise Failure(f"no JSON: {last}")

    def cpp(self, _block, text):
        self.compile(text, "c++", "-xc++", "-std=c++20")

    def c(self, _block, text):
        self.compile(text, "cc", "-xc", "-std=c99")

    def compile(self, text, *compiler):
        ran = self.run(*compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{self.source}/src", "-",
                       input=text)
        if ran.returncode != 0:
            raise Failure(ran.stdout)

    def sh(self, block, text):
        if block.parsed_only:
            for command in commands_of(text):
                self.parse(command)
            return
        ran = self.shell(text)
        if ran.returncode != 0:
            raise Failure(f"exits with {ran.returncode}:\n{ran.stdout}")

    def console(self, block, text):
        if not text.startswith("$ "):
            raise Failure("a block of a console begins with `$ ` and a command")
        if block.parsed_only:
            for each in re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)$", text):
                for command in commands_of(each):
                    self.parse(command)
            return None
        if "python3 " in text and not self.has_package():
            return "the build has no Python package"
        shown = ""
        for command, output in re.findall(r"(?m)^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", text):
            ran = self.shell(command, stderr=subprocess.PIPE)  # which has progress, and so hangs on time
            if ran.returncode != 0 and not ran.stdout:
                raise Failure(f"{command}\nexits with {ran.returncode}:\n{ran.stderr}")
            printed = ran.stdout.replace(str(self.home), "~")
            shown += f"$ {command}\n" + (output if lasting(output) == lasting(printed) else printed)
        return None if shown == text else Shown(shown)

    def python(self, block, text):
        tree = ast.parse(text)
        if not self.has_package():
            return "the build has no Python package"
        self.check_names(tree)
        if block.parsed_only or block.file:
            return None
        ran = self.run(sys.executable, "-c", text)
        if ran.returncode != 0:
            raise Failure(ran.stdout)
        return None

    def check_names(self, tree):
        """Whatever is asked of the package is there, and takes the arguments that it is given."""
        if str(self.package) not in sys.path:
            sys.path.insert(0, str(self.package))
        try:
            package = importlib.import_module("kernwright")
        except ImportError as error:
            raise Failure(f"the build's Python package is not whole: {error}") from None
        known = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    if name.name == "kernwright":
                        known[name.asname or "kernwright"] = package
                    elif name.name.startswith("kernwright."):
                        known.setdefault("kernwright", package)

        def value(node):
            if isinstance(node, ast.Name):
                return known.get(node.id)
            if isinstance(node, ast.Attribute):
                owner = value(node.value)
                if owner is None:
                    return None
                if inspect.ismodule(owner) and owner.__name__ == "kernwright" and node.attr == "torch":
                    return self.torch_names()
                if not hasattr(owner, node.attr):
                    raise Failure(f"{ast.unparse(node)}: {owner.__name__} has no {node.attr}")
                return getattr(owner, node.attr)
            return None

        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = value(node.value.func)
                if inspect.isclass(made) and isinstance(node.targets[0], ast.Name):
                    known[node.targets[0].id] = made
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                value(node)
            called = value(node.func) if isinstance(node, ast.Call) else None
            if callable(called) and not any(isinstance(each, ast.Starred) for each in node.args):
                # A method was found in its class, without its object.
                owner = value(node.func.value) if isinstance(node.func, ast.Attribute) else None
                receiver = [None] if inspect.isclass(owner) else []
                names = {each.arg: None for each in node.keywords if each.arg}
                try:
                    inspect.signature(called).bind(*receiver, *node.args, **names)
                except TypeError as error:
                    raise Failure(f"{ast.unparse(node)}: {error}") from None

    def torch_names(self):
        """What kernwright.torch has, read from its source: it needs PyTorch, which is not here."""
        folder = self.package / "kernwright" / "torch"
        module = types.ModuleType("kernwright.torch")
        for node in ast.parse((folder / "__init__.py").read_text()).body:
            for name in node.names if isinstance(node, ast.ImportFrom) else []:
                setattr(module, name.asname or name.name, None)
        for path in folder.iterdir():
            setattr(module, path.stem, types.SimpleNamespace(__name__=path.stem))
        return module

    def help(self, *words):
        if words not in self.helps:
            self.helps[words] = self.run(self.tool, *words, "--help").stdout
        return self.helps[words]

    def commands(self):
        """Those of the tool, and those that it starts for itself and shows nobody."""
        return {*re.findall(r"(?m)^  ([a-z]+) +- ", self.help()), "compiler", "sweeper", "worker"}

    def parse(self, words):
        """A command that does not run: the tool has its options, its operation takes the problem, make has
        its target."""
        program = pathlib.Path(words[0]).name
        if program == "make":
            targets = re.search(r"\.PHONY: (.*)", (self.source / "Makefile").read_text())[1].split()
            for word in words[1:]:
                if "=" not in word and word not in targets:
                    raise Failure(f"there is no make {word}")
        if program == "kernwright_decode":
            usage = self.run(self.tool.with_name(program), "--help").stdout
            for word in words[1:]:
                if word.startswith("--") and not re.search(rf"{word}\b", usage):
                    raise Failure(f"{program} has no {word}")
        if program != "kernwright" or len(words) == 1:
            return
        command = words[1]
        if not command.startswith("-") and command not in self.commands():
            raise Failure(f"there is no kernwright {command}")
        known = set(re.findall(r"--[a-z][a-z0-9-]*", self.help(command)))
        for word in words[2:]:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in known:
                raise Failure(f"kernwright {command} has no {option}")
        left_open = any(".." in word for word in words)  # m=.. stands for any size
        if command in ("tune", "show", "dispatch") and words[2:3] and words[2].islower() and not left_open:
            problem = words[2:3] + [word for word in words[3:] if re.match(r"[a-z]\w*=", word)]
            if not any(word.startswith(("--epilogue", "--templates")) for word in words):
                ran = self.run(self.tool, "show", *problem, "--sku", "h200")
                if ran.returncode != 0 and "no record for" not in ran.stdout:
                    raise Failure(ran.stdout)


class Shown(str):
    """What the commands of a block print, where that is not what stands there."""


def commands_of(text):
    """The words of each command of a shell's text, without what assigns variables before it."""
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for part in re.split(r"\s(?:\||&&)\s", line):
            words = shlex.split(part, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


def documents_of(source):
    left_out = {"build", "dist", ".git"}
    return [path for path in sorted(source.rglob("*.md"))
            if not left_out & set(path.relative_to(source).parts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("documents", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    build, source = arguments.build.resolve(), arguments.source.resolve()
    tool = build / "bin" / "kernwright"
    skip_without_compiler(tool)
    gpu = has_gpu(tool)
    torch = gpu and importlib.util.find_spec("torch") is not None
    wrong, skipped, count = [], {}, 0
    for path in arguments.documents or documents_of(source):
        document = path.read_text()
        lines = document.splitlines(keepends=True)
        replaced = []
        with tempfile.TemporaryDirectory() as folder:
            reader = Reader(build, source, pathlib.Path(folder))
            for block in blocks_of(document):
                count += 1
                lacks = lacking(block, gpu, torch)
                try:
                    result = reader.read(block._replace(parsed_only=True) if lacks else block) or lacks
                except Failure as failure:
                    wrong.append(f"{path}:{block.line + 1}: {failure}")
                    continue
                if isinstance(result, Shown) and arguments.update:
                    replaced.append((block, result))
                elif isinstance(result, Shown):
                    wrong.append(f"{path}:{block.line + 1}: `make golden` accepts what it prints now:\n{result}")
                elif result:
                    skipped[result] = skipped.get(result, 0) + 1
            for line, span in spans_of(document):
                count += 1
                try:
                    for command in commands_of(span):
                        reader.parse(command)
                except (Failure, ValueError) as failure:
                    wrong.append(f"{path}:{line + 1}: {span}: {failure}")
        for block, result in reversed(replaced):
            lines[block.line:block.line + block.text.count("\n")] = [
                block.indent + line for line in result.splitlines(keepends=True)]
        if replaced:
            path.write_text("".join(lines))
    for each in wrong:
        print(each)
    for reason, times in skipped.items():
        print(f"{times} blocks not run: {reason}")
    print(f"{count} blocks and commands, {len(wrong)} of them wrong")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
