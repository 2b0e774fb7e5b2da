"""Where NVRTC and nvJitLink are, where the CUDA Toolkit came as wheels."""

import importlib.util
import os
import pathlib

_VARIABLE = "KERNWRIGHT_CUDA_PATH"


def announce_toolkit() -> None:
    """Tells the library the folder of the toolkit's wheels, unless the caller has named one. The
    library looks for installed toolkits itself."""
    if os.environ.get(_VARIABLE):
        return
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        for folder in sorted(pathlib.Path(place).glob("cu1[23]"), reverse=True):
            if list(folder.glob("lib/libnvrtc.so*")) and list(folder.glob("lib/libnvJitLink.so*")):
                os.environ[_VARIABLE] = str(folder)
                return
