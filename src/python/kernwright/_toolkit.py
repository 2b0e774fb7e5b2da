"""Finds NVRTC and nvJitLink if Python's package manager installed them."""

import importlib.util
import os
import pathlib
from typing import Iterator

_VARIABLE = "KERNWRIGHT_CUDA_PATH"
# Paths below a folder of packages, in the layouts of the wheels of CUDA 13 and of CUDA 12.
_NVRTC = ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")


def _candidates() -> Iterator[pathlib.Path]:
    """Yields folders that the library searches as it searches a toolkit: the folders of packages
    that hold NVIDIA's wheels, then those that cuda-pathfinder knows, such as Conda's."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        packages = pathlib.Path(place).parent
        if any((packages / library).exists() for library in _NVRTC):
            yield packages
    try:
        from cuda.pathfinder import find_nvidia_header_directory  # type: ignore[import-untyped]
    except ImportError:  # the package runs from a build folder
        return
    for name in ("nvrtc", "cudart"):
        headers = find_nvidia_header_directory(name)
        if headers:
            yield pathlib.Path(headers).parent


def announce_toolkit() -> None:
    """Tells the library the folder that it takes the compiler from, in $KERNWRIGHT_CUDA_PATH, which
    its worker and its compile processes inherit. If the user has set it, it stays. If Python's
    packages have no compiler, the library looks for an installed toolkit by itself. Nothing is
    loaded here, since a service that answers from its cache needs no compiler."""
    if os.environ.get(_VARIABLE):
        return
    found = next(_candidates(), None)
    if found is not None:
        os.environ[_VARIABLE] = str(found)
