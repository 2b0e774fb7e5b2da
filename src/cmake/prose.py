#!/usr/bin/env python3
"""prose.py [ROOT]: counts four habits in the comments of C++ and CUDA sources outside tests.

A room is a folder of src/, or another folder at the top. Fails if a room has more of one habit per
10,000 words of comments than the bars allow. Strings are not read, and a sentence may go on from
line to line.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tuner", "cache", "bench", "templates")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
HABITS = {
    "What/Whether/Of": re.compile(r"(?:^|[.:] )(?:What|Whether|Of) "),
    "where": re.compile(r"\b[Ww]here\b"),
    "that of": re.compile(r"\b(?:[Tt]hat|[Tt]hose) of\b"),
    "lies": re.compile(r"\blies?\b"),
}
# Per 10,000 words. leveldb, nvbench and DeepGEMM have about 10 of "where" and none of the others.
BARS = (2, 20, 3, 1)
# Strings are here so that `//` within one begins no comment.
TOKEN = re.compile(r'//(?P<comment>[^\n]*)|/\*.*?\*/|R"(?P<end>[^()\\ ]{0,16})\(.*?\)(?P=end)"'
                   r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def comments(source):
    """The texts of a source's comments; those that fill lines next to each other are one text."""
    texts, last = [], None
    for token in TOKEN.finditer(source):
        if token["comment"] is None:
            continue
        text = re.sub(r"^[/!]*<?\s*", "", token["comment"]).rstrip()
        begin = source.rfind("\n", 0, token.start()) + 1
        alone = not source[begin:token.start()].strip()
        if alone and last == begin and text:
            texts[-1] += " " + text
        elif text:
            texts.append(text)
        last = token.end() + 1 if alone and text else None
    return texts


def room_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]


def count(sources):
    """Words and habits by room, of (name, text) pairs."""
    words, found = collections.Counter(), collections.defaultdict(lambda: [0] * len(HABITS))
    for name, source in sources:
        for text in comments(source):
            words[room_of(name)] += len(text.split())
            for i, habit in enumerate(HABITS.values()):
                found[room_of(name)][i] += len(habit.findall(text))
    return words, found


def excesses(sources):
    """A line for each habit that a room has more often than its limit. Once is not a habit."""
    words, found = count(sources)
    lines = []
    for room in sorted(words):
        for habit, times, limit in zip(HABITS, found[room], BARS):
            share = 1e4 * times / words[room]
            if share > limit and times > 1:
                lines.append(f'{room}: "{habit}" {times} times in {words[room]} words of comments, '
                             f"{share:.1f} per 10,000; the limit is {limit}")
    return lines


def sources_in(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(root).as_posix(), path.read_text()


if __name__ == "__main__":
    over = excesses(sources_in(pathlib.Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT))
    print("\n".join(over), end="\n" if over else "")
    sys.exit(bool(over))
