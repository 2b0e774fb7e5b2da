#!/usr/bin/env python3
"""The part of bench/engines/stage.py that changes code: which device code of a fat binary is kept."""

import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/engines"))
sys.dont_write_bytecode = True
import stage  # noqa: E402

PTX, CUBIN = 1, 2


def container(*entries):
    """A container of (kind, architecture, code)."""
    body = b""
    for kind, sm, code in entries:
        header = struct.pack("<HHIQ", kind, 0, 64, len(code)).ljust(28, b"\1") + struct.pack("<I", sm)
        body += header.ljust(64, b"\1") + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


class StageTest(unittest.TestCase):
    def kept(self, *entries):
        """Which of the entries keep their code."""
        data = b"before.." + container(*((kind, sm, code) for kind, sm, code in entries)) + b"\0" * 8
        data += container((CUBIN, 90, b"other container"))
        found = stage.without_others(data, 8, len(data) - 8, 90)
        self.assertEqual(len(found), len(data))
        self.assertIn(b"other container", found)
        return [code in found for *_, code in entries]

    def test_only_what_a_gpu_loads_is_kept(self):
        self.assertEqual(self.kept((CUBIN, 80, b"of_sm_80"), (CUBIN, 90, b"of_sm_90"), (PTX, 90, b"the_ptx_")),
                         [False, True, False])
        self.assertEqual(self.kept((CUBIN, 100, b"of_sm100"), (PTX, 80, b"ptx_of80"), (PTX, 100, b"ptx_100_")),
                         [False, True, False])


if __name__ == "__main__":
    unittest.main()
