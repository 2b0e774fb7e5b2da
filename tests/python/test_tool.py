"""The command line tool of the package, and how the toolkit is found."""

import os
import pathlib
import subprocess
import sys

import pytest

import kernwright as kw
from kernwright import _toolkit


def test_doctor_tells_what_there_is():
    text = kw.doctor()
    assert f"kernwright {kw.__version__}" in text
    assert "cache" in text and "compiler" in text


def tool():
    """Returns the console script, if the package is installed."""
    path = pathlib.Path(sys.executable).with_name("kernwright")
    if not path.exists():
        pytest.skip("the package is not installed")
    return path


def test_the_tool_is_the_one_of_the_package():
    printed = subprocess.run([tool(), "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.startswith(f"kernwright {kw.__version__}")


def test_its_status_is_handed_on():
    assert subprocess.run([tool(), "nonsense"], capture_output=True).returncode == 2


def test_it_runs_as_a_module():
    printed = subprocess.run([sys.executable, "-m", "kernwright", "operations"], capture_output=True,
                             text=True, check=True).stdout
    assert "matmul" in printed


def test_a_reader_that_leaves_ends_it_silently():
    with subprocess.Popen([sys.executable, "-m", "kernwright", "operations"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def wheel_of(folder, library):
    place = folder / library
    place.parent.mkdir(parents=True)
    place.touch()
    return folder


@pytest.mark.parametrize("library", ["nvidia/cu13/lib/libnvrtc.so.13",
                                     "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"])
def test_wheels_of_nvidia_are_found(monkeypatch, tmp_path, library):
    monkeypatch.delenv("KERNWRIGHT_CUDA_PATH", raising=False)
    monkeypatch.setattr(sys, "path", [str(wheel_of(tmp_path, library))] + sys.path)
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    _toolkit.announce_toolkit()
    assert os.environ["KERNWRIGHT_CUDA_PATH"] == str(tmp_path)


def test_what_the_user_says_stands(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNWRIGHT_CUDA_PATH", "/my/toolkit")
    monkeypatch.setattr(sys, "path", [str(wheel_of(tmp_path, "nvidia/cu13/lib/libnvrtc.so.13"))] + sys.path)
    _toolkit.announce_toolkit()
    assert os.environ["KERNWRIGHT_CUDA_PATH"] == "/my/toolkit"
