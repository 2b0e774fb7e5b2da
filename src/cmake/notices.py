#!/usr/bin/env python3
"""notices.py OUT FILE...: writes the licenses of all Debian packages that a build took files from.

A FILE is what a linker read, as it writes it down with --dependency-file (*.link.d), or a file that
no linker reads, such as a header. Files outside /usr and /lib are the project's own.
"""

import pathlib
import re
import subprocess
import sys

DOC = pathlib.Path("/usr/share/doc")
LICENSES = pathlib.Path("/usr/share/common-licenses")


def files_of(path):
    if not path.endswith(".link.d"):
        return [path]
    text = pathlib.Path(path).read_text().replace("\\\n", " ")
    return text.splitlines()[0].split(":", 1)[1].split()


def packages_of(files):
    """The packages that own `files`, sorted."""
    # Debian 12 has /lib as a link to /usr/lib, and packages name their files by either.
    real = {str(pathlib.Path(file).resolve()) for file in files}
    real = sorted(file for file in real if file.startswith("/usr/"))
    both = [name for file in real for name in (file, file.removeprefix("/usr"))]
    found = subprocess.run(["dpkg-query", "-S", *both], capture_output=True, text=True,
                           check=False).stdout
    owners = dict(reversed(line.split(": ", 1)) for line in found.splitlines())
    packages = set()
    for file in real:
        owner = owners.get(file) or owners.get(file.removeprefix("/usr"))
        if owner is None:
            raise SystemExit(f"notices.py: {file} belongs to no package with a license")
        packages.add(owner.split(":")[0])
    return sorted(packages)


def notices(packages):
    texts = {}  # packages of one source have one text
    for package in packages:
        text = (DOC / package / "copyright").read_text(errors="replace").strip()
        texts.setdefault(text, []).append(package)
    parts = {", ".join(names): text for text, names in texts.items()}
    for name in sorted({name.rstrip(".") for text in texts
                        for name in re.findall(rf"{LICENSES}/([\w.+-]+)", text)}):
        parts[f"{LICENSES}/{name}"] = (LICENSES / name).read_text().strip()
    rule = "=" * 80
    return ("kernwright is linked with parts of these Debian packages, or carries them. Their\n"
            "notices follow, and then the licenses that these refer to.\n" +
            "".join(f"\n{rule}\n{title}\n{rule}\n\n{text}\n" for title, text in parts.items()))


if __name__ == "__main__":
    linked = [file for path in sys.argv[2:] for file in files_of(path)]
    pathlib.Path(sys.argv[1]).write_text(notices(packages_of(linked)))
