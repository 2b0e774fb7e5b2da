#!/usr/bin/env python3
"""Reads every #include of the source tree against the tables of layers and of rooms: nothing points
up, neither between layers nor between the folders of one layer, and no folder is too full."""

import collections
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Layer -> the layers it may include, besides itself. ARCHITECTURE.md draws the same.
BELOW = {
    "support": [],
    "model": ["support"],
    "models": ["model", "support"],
    "compile": ["model", "support"],
    "device": ["model", "support"],
    "launch": ["device", "model", "support"],
    "cache": ["compile", "device", "model", "support"],
    "tuner": ["cache", "compile", "device", "model", "support"],
    "service": ["tuner", "cache", "launch", "compile", "device", "models", "model", "support"],
    "cli": ["service", "cache", "launch", "compile", "device", "models", "model", "support"],
}
FOLDERS = {layer: f"src/{layer}" for layer in BELOW} | {"cache": "cache", "tuner": "tuner"}
# Layer -> room -> the rooms of the same layer it may include, besides itself. A room is a folder of
# a layer; "" is the layer's own folder. Bottom first. A layer that is not named here is one room.
ROOMS = {
    "support": {
        "": [],
        "processes": [""],
        "libraries": ["processes", ""],
    },
    "model": {
        "files": [],
        "expression": [],
        "operation": ["expression", "files"],
        "candidate": ["operation", "expression", "files"],
        "result": ["candidate"],
        "catalog": ["candidate", "operation", "expression", "files"],
    },
    "device": {
        "": [],
        "driver": [],
        "program": ["driver", ""],
        "timing": ["program", "driver", ""],
        "cuda": ["timing", "program", "driver", ""],
    },
    "cache": {
        "fields": [],
        "entries": [],
        "records": ["fields"],
        "stores": ["records", "entries", "fields"],
        "layers": ["stores", "records", "entries", "fields"],
    },
    "tuner": {
        "": [],
        "cost": [],
        "learning": [],
        "data": [],
        "audit": ["data"],
        "check": ["data", ""],
        "measure": ["check", "audit", "data", ""],
        "worker": ["measure", "audit", "cost", ""],
        "finals": [""],
        "strategies": ["learning"],
        "candidates": ["strategies", "cost"],
        "search": ["candidates", "strategies", "finals", ""],
        "session": ["search", "candidates", "strategies", "finals", "cost", ""],
    },
    "service": {
        "answer": [],
        "tune": ["answer"],
        "serve": ["tune", "answer"],
        "sweep": ["serve"],
        "report": ["sweep", "serve"],
        "check": [],
        "c": [],
    },
    "cli": {
        "": [],
        "cache": [""],
        "sweep": [""],
        "process": [""],
    },
}
# Sources, headers among them, that one folder may hold: what a person takes in at a look.
MOST_SOURCES = 28
# A public header belongs to the layer that implements it: what is not named here, to service.
PUBLIC = {"export.h": "support", "visible.h": "support", "result.h": "support",
          "dtype.h": "support", "problem.h": "model", "tensor_binding.h": "model",
          "l2_state.h": "model",
          "kernel_path.h": "model",
          "model.h": "models",
          "match.h": "model",
          "kernel.h": "launch", "baked_launch.h": "launch", "chain.h": "launch"}
# Third-party headers that only some layers may see; none of them may be in a public header.
RESTRICTED = {"llvm": ["support", "cli"], "tbb": ["service"],
              "oneapi": ["service"], "archive.h": ["support"],
              "archive_entry.h": ["support"], "sodium.h": ["support"]}
HIDDEN = ["llvm", "tbb", "oneapi", "nlohmann", "archive.h", "archive_entry.h", "sodium.h"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def violation(layer, mark, header):
    """Why a file of `layer` may not include `header`, or None."""
    first, _, rest = header.partition("/")
    if first == "kernwright":
        owner = PUBLIC.get(rest, "service")
    elif mark == '"' or first in BELOW:
        owner = first
        if mark == "<" or not rest:
            return 'a header of a layer is written from the source root, as "model/space.h"'
        if first not in BELOW:
            return f"{first}/ is no layer"
    else:
        allowed = RESTRICTED.get(first)
        return f"<{first}/> belongs to {allowed}" if allowed and layer not in allowed else None
    if owner != layer and owner not in BELOW[layer]:
        return f"{layer} lies below {owner}"
    return None


def room_of(path):
    """Returns the room of a file, given its path within its layer."""
    return path.rpartition("/")[0]


def room_violation(layer, room, header):
    """Why a file in a room of `layer` may not include `header`, or None."""
    rooms = ROOMS.get(layer, {"": []})
    if room not in rooms:
        return f"{layer} has no room \"{room}\""
    first, _, rest = header.partition("/")
    other = room_of(rest)
    if first != layer or other == room or other in rooms[room]:
        return None
    return f"room \"{room}\" of {layer} does not know \"{other}\""


def public_violation(mark, header):
    """Why a public header may not include `header`, or None."""
    first = header.partition("/")[0]
    if mark == '"' or first in BELOW or first in HIDDEN:
        return "a public header includes the standard library and <kernwright/...> only"
    return None


def check(root):
    """All violations below `root`, as "file:line: include: why"."""
    found = []

    def read(folder, judge):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            text = path.read_text()
            for match in INCLUDE.finditer(text):
                why = judge(path, match[1], match[2])
                if why:
                    line = text.count("\n", 0, match.start(1)) + 1
                    found.append(f"{path.relative_to(root)}:{line}: {match[2]}: {why}")

    for layer, folder in FOLDERS.items():
        def judge(path, mark, header, layer=layer, folder=folder):
            room = room_of(path.relative_to(root / folder).as_posix())
            return violation(layer, mark, header) or room_violation(layer, room, header)
        read(folder, judge)
    # A public header obeys the rule of public headers and the rule of the layer it belongs to.
    read("src/kernwright", lambda path, mark, header: public_violation(mark, header)
         or violation(PUBLIC.get(path.name, "service"), mark, header))
    # The Python extension sees the C ABI, as any other language would.
    read("src/python", lambda path, mark, header: None
         if header in ("kernwright/c.h", "kernwright/visible.h")
         or header.startswith("python/extension/") or "/" not in header.replace("sys/", "")
         else "the Python extension includes kernwright/c.h and visible.h alone of kernwright")
    # An example sees what a user sees, files beside it, and a reader of JSON.
    read("src/examples", lambda path, mark, header: None
         if (path.parent / header).exists() or header == "nlohmann/json.hpp"
         else public_violation(mark, header))
    return found


def full_folders(root):
    """The folders of the layers that hold more than MOST_SOURCES."""
    sources = collections.Counter(
        path.parent.relative_to(root).as_posix()
        for folder in (*FOLDERS.values(), "src/kernwright", "src/python")
        for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp"))
    return [f"{folder}: {count} sources" for folder, count in sorted(sources.items())
            if count > MOST_SOURCES]


class LayeringTest(unittest.TestCase):
    def planted(self, file, line):
        """The violations in a tree that holds one file with one line."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / file
            path.parent.mkdir(parents=True)
            path.write_text(f"#pragma once\n{line}\n")
            return check(pathlib.Path(folder))

    def test_nothing_points_up(self):
        self.assertEqual(check(ROOT), [])

    def test_the_tree_is_read(self):
        headers = [p for folder in FOLDERS.values() for p in (ROOT / folder).rglob("*.h")]
        self.assertGreater(len(headers), 20)

    def test_an_include_that_points_up_is_found(self):
        self.assertEqual(self.planted("src/model/space.h", '#include "tuner/runner.h"'),
                         ["src/model/space.h:2: tuner/runner.h: model lies below tuner"])
        self.assertEqual(len(self.planted("src/support/a.cpp", "# include <kernwright/problem.h>")), 1)
        self.assertEqual(len(self.planted("cache/a.cpp", '#include "service/service.h"')), 1)
        self.assertEqual(len(self.planted("src/compile/a.h", '#include "device/device.h"')), 1)
        self.assertEqual(len(self.planted("src/service/a.h", '#include "cli/command.h"')), 1)

    def test_other_forbidden_includes_are_found(self):
        self.assertEqual(len(self.planted("src/model/a.cpp", "#include <llvm/Support/Path.h>")), 1)
        self.assertEqual(len(self.planted("src/model/a.cpp", '#include "llvm/Support/Path.h"')), 1)
        self.assertEqual(len(self.planted("src/model/a.cpp", '#include "space.h"')), 1)
        self.assertEqual(len(self.planted("src/model/a.cpp", '#include "tests/model/helper.h"')), 1)
        self.assertEqual(len(self.planted("src/examples/a.cpp", '#include "model/space.h"')), 1)
        self.assertEqual(len(self.planted("src/kernwright/a.h", "#include <nlohmann/json.hpp>")), 1)
        self.assertEqual(len(self.planted("src/python/extension/a.cpp",
                                          "#include <kernwright/kernel.h>")), 1)
        self.assertEqual(len(self.planted("src/kernwright/result.h",
                                          "#include <kernwright/problem.h>")), 1)

    def test_the_rooms_are_those_of_the_tree(self):
        for layer, folder in FOLDERS.items():
            there = {room_of(path.relative_to(ROOT / folder).as_posix())
                     for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp")}
            self.assertEqual(there, set(ROOMS.get(layer, {"": []})), layer)

    def test_every_room_knows_only_rooms_before_it(self):
        for layer, rooms in ROOMS.items():
            seen = set()
            for room, known in rooms.items():
                self.assertLessEqual(set(known), seen, f"{layer}: {room} stands before what it knows")
                seen.add(room)

    def test_an_include_through_the_wrong_door_is_found(self):
        self.assertEqual(
            self.planted("tuner/finals/race.h", '#include "tuner/search/search.h"'),
            ['tuner/finals/race.h:2: tuner/search/search.h: '
             'room "finals" of tuner does not know "search"'])
        self.assertEqual(len(self.planted("tuner/runner.h", '#include "tuner/data/data_ops.h"')), 1)
        self.assertEqual(len(self.planted("tuner/strategies/a.cpp", '#include "tuner/a.h"')), 1)
        self.assertEqual(len(self.planted("src/model/expression/a.h",
                                          '#include "model/operation/problem.h"')), 1)
        self.assertEqual(len(self.planted("src/service/tune/a.cpp",
                                          '#include "service/serve/core.h"')), 1)
        self.assertEqual(self.planted("src/service/serve/a.h", '#include "service/tune/a.h"'), [])
        self.assertEqual(self.planted("tuner/session/a.cpp", '#include "model/result/trial.h"'), [])

    def test_a_room_that_is_in_no_table_is_found(self):
        self.assertEqual(self.planted("tuner/new/a.cpp", '#include "tuner/runner.h"'),
                         ['tuner/new/a.cpp:2: tuner/runner.h: tuner has no room "new"'])
        self.assertEqual(len(self.planted("tuner/a.cpp", '#include "cache/stores/record_store.h"')), 0)
        self.assertEqual(len(self.planted("src/compile/new/a.cpp", '#include "support/text.h"')), 1)

    def test_no_folder_is_too_full(self):
        self.assertEqual(full_folders(ROOT), [])

    def test_a_folder_that_is_too_full_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "tuner" / "session"
            folder.mkdir(parents=True)
            for i in range(MOST_SOURCES):
                (folder / f"{i}.h").touch()
            self.assertEqual(full_folders(pathlib.Path(name)), [])
            (folder / "one_more.cpp").touch()
            self.assertEqual(full_folders(pathlib.Path(name)), ["tuner/session: 29 sources"])

    def test_only_tests_and_benches_simulate(self):
        include = '#include "bench/simulation/noise.h"'
        for file in ("tuner/search/search.cpp", "src/service/serve/core.cpp", "src/cli/cmd_tune.cpp"):
            self.assertEqual(self.planted(file, include),
                             [f"{file}:2: bench/simulation/noise.h: bench/ is no layer"])
        self.assertEqual(self.planted("bench/simulation/noise.cpp", include), [])

    def test_what_points_down_is_let_through(self):
        self.assertEqual(self.planted("src/cli/a.cpp", "#include <llvm/Support/CommandLine.h>"), [])
        self.assertEqual(self.planted("tuner/a.cpp", '#include "cache/record.h"'), [])
        self.assertEqual(self.planted("src/kernwright/kernel.h", "#include <kernwright/problem.h>"), [])
        self.assertEqual(self.planted("src/device/a.cpp", "#include <cuda.h>"), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
