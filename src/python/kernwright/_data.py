"""Packages that bring tuned records, such as kernwright-h100."""

import importlib.metadata
import logging
from typing import List

_log = logging.getLogger("kernwright")


def data_folders() -> List[str]:
    """Returns the folders of the installed packages with an entry point in the group
    `kernwright.data`. Each is an unpacked bundle, which the library checks. A package that cannot
    be imported, or whose folder cannot be a path, is logged and left out, whatever it raises."""
    folders = []
    for entry in importlib.metadata.entry_points(group="kernwright.data"):
        try:
            folder = str(entry.load())
            if not folder.isprintable():
                raise ValueError(f"its folder is {folder!r}")
            folders.append(folder)
        except BaseException as error:  # also a SystemExit must not end this program
            _log.warning("the data package %s is left out: %r", entry.name, error)
    return folders
