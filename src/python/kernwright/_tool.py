"""The command line tool that the package holds."""

import os
import pathlib
import signal
import subprocess
import sys
from typing import Dict, List

from ._arrays import make_error
from ._data import data_folders
from ._toolkit import announce_toolkit
from .plugins import _layers

_SIGNED_CACHES = "KERNWRIGHT_SIGNED_CACHES"


def _path() -> pathlib.Path:
    path = pathlib.Path(__file__).parent / "bin" / "kernwright"
    if not path.exists():
        raise make_error(f"the tool is not at {path}")
    return path


def _environment() -> Dict[str, str]:
    """Returns the environment of the tool, which tells it of the toolkit and, unless the user names
    others, of the data packages."""
    announce_toolkit()
    return {_SIGNED_CACHES: ":".join(data_folders()), **os.environ}


def main() -> None:
    """Becomes the command line tool, with the arguments of this process. What it says of the machine is followed by
    what the package knows of engines."""
    path = _path()
    if sys.argv[1:2] == ["doctor"] and set(sys.argv[2:]) <= {"--verbose"}:
        done = subprocess.run([str(path), *sys.argv[1:]], env=_environment(), check=False)
        print(_layers.describe(), end="")
        sys.exit(done.returncode)
    # Python ignores this signal, and an ignored signal stays so in the program that follows: the
    # tool would not end silently when its reader is gone.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(path, [str(path)] + sys.argv[1:], _environment())


def doctor() -> str:
    """Returns what this machine can do: GPU, driver, compiler, cache and data packages, and which
    layers of the installed engines are ours, as `kernwright doctor` prints it."""
    command: List[str] = [str(_path()), "doctor"]
    return subprocess.run(command, env=_environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, text=True).stdout + _layers.describe()
