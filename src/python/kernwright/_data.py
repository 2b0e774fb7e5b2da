"""Packages that bring tuned records, such as kernwright-h100."""

import importlib.metadata
import logging
from typing import List

_log = logging.getLogger("kernwright")


def data_folders() -> List[str]:
    """The folders of the installed packages with an entry point in the group `kernwright.data`. Each
    is an unpacked bundle; the library checks whether the project signed it. A package that cannot
    be imported is logged and left out."""
    folders = []
    for entry in importlib.metadata.entry_points(group="kernwright.data"):
        try:
            folders.append(str(entry.load()))
        except Exception as error:  # what another package raises is its own affair
            _log.warning("the data package %s is left out: %s", entry.name, error)
    return folders
