"""wheel_systems.py WHEEL: says for which systems a wheel is, by the platform in its name, and which older
ones it excludes."""

import re
import sys

# Releases that are still in use, with their glibc.
SYSTEMS = ((2, 28, "RHEL 8"), (2, 31, "Debian 11"), (2, 34, "RHEL 9"), (2, 35, "Ubuntu 22.04"),
           (2, 36, "Debian 12"), (2, 39, "Ubuntu 24.04 and RHEL 10"), (2, 41, "Debian 13"))


def systems(wheel):
    """The line for a wheel of this name."""
    tags = re.findall(r"manylinux_(\d+)_(\d+)_", wheel)
    if not tags:
        raise ValueError(f"{wheel} names no manylinux platform")
    needed = min((int(major), int(minor)) for major, minor in tags)
    excluded = [name for *glibc, name in SYSTEMS if tuple(glibc) < needed]
    line = f"for glibc {needed[0]}.{needed[1]} or newer"
    return f"{line}; older systems are excluded: {', '.join(excluded)}" if excluded else line


if __name__ == "__main__":
    print(systems(sys.argv[1]))
