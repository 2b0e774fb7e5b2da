#!/usr/bin/env python3
"""Stages vLLM for a machine with a GPU and PyTorch that cannot download anything.

Makes FOLDER/site.tar.xz: vLLM and the packages named, for the Python and the platform of that machine, with
the extension modules named by --keep alone and without device code of other architectures. Unpack it there,
beside kernwright, into a folder of PYTHONPATH. What is left out no kernel of the model may need: vLLM's log
names its backends. The default of --keep has vLLM's kernels of quantized linear layers, also DeepGEMM; int4 needs
the package compressed-tensors, mixtures need _moe_C as well, and fp8 in blocks is multiplied by flashinfer-python if that is there.

usage: stage.py FOLDER --vllm VERSION [--keep NAME,...] [--python 3.12] [--sm 90] [PACKAGE[==VERSION] ...]
"""

import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile

KEEP = "_C,_C_stable_libtorch,_vllm_fa3_C,cumem_allocator"
GLIBC = range(12, 36)  # manylinux_2_N that wheels are taken of
_CONTAINER, _PTX, _CUBIN = 0xBA55ED50, 1, 2


# Pure parts, which the tests run without a network.

def entries_of(data, begin, size):
    """Yields the entries of each container of a fat binary as (kind, architecture, offset, bytes)."""
    at = begin
    while at + 16 <= begin + size:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != _CONTAINER:
            at += 8  # padding
            continue
        end = at + header + length
        entries, place = [], at + header
        while place < end:
            kind, _, own, count = struct.unpack_from("<HHIQ", data, place)
            entries.append((kind, struct.unpack_from("<I", data, place + 28)[0], place + own, count))
            place += own + count
        yield entries
        at = end


def without_others(data, begin, size, sm):
    """Zeroes the code that a GPU of this architecture does not load; all stays in its place."""
    kept = bytearray(data)
    for entries in entries_of(data, begin, size):
        has_code = any(kind == _CUBIN and own == sm for kind, own, *_ in entries)
        for kind, own, place, count in entries:
            is_loaded = own == sm and kind == _CUBIN or not has_code and kind == _PTX and own <= sm
            if not is_loaded:
                kept[place:place + count] = bytes(count)
    return bytes(kept)


def fat_binary(file):
    """Returns offset and bytes of a shared object's section of device code."""
    listed = subprocess.run(["readelf", "-SW", file], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\.nv_fatbin\s+PROGBITS\s+\S+\s+(\S+)\s+(\S+)", listed)
    return (int(found[1], 16), int(found[2], 16)) if found else (0, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--keep", default=KEEP)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--sm", type=int, default=90)
    arguments = parser.parse_intermixed_args()  # a package may stand behind an option
    site = arguments.folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    target = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", arguments.python,
              *(f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC),
              *(f"--platform=manylinux{year}_x86_64" for year in (1, 2014))]
    wheels = arguments.folder / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *target, "--dest", wheels,
                    f"vllm=={arguments.vllm}", *arguments.packages], check=True)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)
    for file in (site / "vllm").rglob("*.so"):
        if file.name.split(".")[0] not in arguments.keep.split(","):
            file.unlink()
            continue
        subprocess.run(["strip", "--strip-unneeded", file], check=True)
        file.write_bytes(without_others(file.read_bytes(), *fat_binary(file), arguments.sm))
    with tarfile.open(arguments.folder / "site.tar.xz", "w:xz") as archive:
        archive.add(site, ".")
    print(arguments.folder / "site.tar.xz", (arguments.folder / "site.tar.xz").stat().st_size)


if __name__ == "__main__":
    main()
