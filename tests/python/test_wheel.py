"""The contents of the wheel, if the package is installed from one."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

import kernwright as kw


@pytest.fixture
def files():
    try:
        distribution = importlib.metadata.distribution("kernwright")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    return {str(file): file for file in distribution.files}


def test_it_holds_library_tool_extension_and_types(files):
    for name in ("kernwright/_kernwright.abi3.so", "kernwright/lib/libkernwright.so.0",
                 "kernwright/bin/kernwright", "kernwright/py.typed", "kernwright/_kernwright.pyi"):
        assert name in files
    assert any(name.startswith("kernwright.libs/libtbb") for name in files)


def test_the_licenses_of_others_go_along(files):
    text = files["kernwright/THIRD_PARTY_NOTICES"].locate().read_text()
    for name in ("libarchive-dev", "libsodium-dev", "libstdc++-", "libtbb", "libzstd-dev", "llvm-", "nlohmann-json3-dev"):
        assert name in text


def test_it_is_small(files):
    size = sum(file.size or 0 for name, file in files.items() if "__pycache__" not in name)
    assert size < 12e6  # 3.7 MB compressed


def test_its_code_is_in_the_library_alone(files):
    assert files["kernwright/bin/kernwright"].locate().stat().st_size < 100e3


def test_the_library_shows_the_public_interfaces_and_how_the_tool_begins(files):
    script = pathlib.Path(__file__).parents[1] / "build" / "exports_test.py"
    library = files["kernwright/lib/libkernwright.so.0"].locate()
    run = subprocess.run([sys.executable, script, library, "kernwright::cli::run_tool"],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_it_serves_every_python_and_many_systems(files):
    wheel = importlib.metadata.distribution("kernwright").read_text("WHEEL")
    # How old they may be depends on the system that it was built on: on Debian 12, 2.34.
    assert re.search(r"^Tag: cp310-abi3-manylinux_2_\d+_x86_64$", wheel, re.MULTILINE), wheel


def test_its_version_is_that_of_the_library(files):
    assert importlib.metadata.version("kernwright") == kw.__version__


def test_nothing_is_compiled_or_downloaded_for_it(files):
    """Its hard dependencies are pure Python."""
    required = [text for text in importlib.metadata.requires("kernwright") if "extra" not in text]
    assert [text.split(">")[0] for text in required] == ["cuda-pathfinder"]


def test_no_path_of_the_machine_that_built_it_is_in_it(files):
    root = pathlib.Path(__file__).resolve().parents[2]  # may be /kernwright, which ends a user's paths too
    sources = f"{re.escape(str(root))}/(src|templates|tuner|cache|build)/".encode()
    for name in ("kernwright/lib/libkernwright.so.0", "kernwright/_kernwright.abi3.so"):
        assert not re.search(sources, files[name].read_binary())
