"""The command line tool that the package holds."""

import os
import pathlib
import subprocess
import sys
from typing import List

from ._arrays import make_error
from ._toolkit import announce_toolkit


def _path() -> pathlib.Path:
    path = pathlib.Path(__file__).parent / "bin" / "kernwright"
    if not path.exists():
        raise make_error(f"the tool is not at {path}")
    return path


def main() -> None:
    """Becomes the command line tool, with the arguments of this process."""
    announce_toolkit()
    path = _path()
    os.execv(path, [str(path)] + sys.argv[1:])


def doctor() -> str:
    """What this machine can do: GPU, driver, compiler, cache, as `kernwright doctor` prints it."""
    announce_toolkit()
    command: List[str] = [str(_path()), "doctor"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          text=True).stdout
