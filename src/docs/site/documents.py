"""The documents of the repository that are pages of the site, and the targets of their links."""

import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = "src/docs/pages/"

# By path in the repository; beside these, all of src/docs/pages and all below templates/.
_PAGE_OF = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "internals/architecture.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/security.md",
    "CHANGELOG.md": "internals/changelog.md",
    "cache/README.md": "internals/cache.md",
    "tuner/README.md": "internals/tuner.md",
    "src/cli/README.md": "guides/command_line.md",
    "src/examples/README.md": "guides/programs.md",
    "src/examples/launch_paths.md": "guides/launch_paths.md",
    "src/examples/deployment/README.md": "guides/deployment.md",
    "src/examples/decode/README.md": "guides/decode.md",
    "src/python/README.md": "guides/python.md",
    "src/python/data/README.md": "guides/data_packages.md",
    "templates/README.md": "reference/templates.md",
    "bench/results/h200/README.md": "figures/h200.md",
    "bench/results/h100/README.md": "figures/h100.md",
    "bench/results/cpu/README.md": "figures/cpu.md",
    "bench/results/simulation/README.md": "figures/simulation.md",
}

# A fenced block, an inline span of code, or a link's target.
_LINK = re.compile(r"(?ms)^(?P<fence>```+).*?^(?P=fence)[ ]*$|`[^`\n]+`|\]\((?P<target>[^()\s]+)\)")


def page_of(path):
    """Returns the site's path of a document of the repository; None if it is not a page."""
    if path in _PAGE_OF:
        return _PAGE_OF[path]
    if path.startswith(PAGES):
        return path[len(PAGES):]
    found = re.fullmatch(r"templates/(.+)/(README|NOTES)\.md", path)
    return f"operations/{found[1]}{'/notes' if found[2] == 'NOTES' else ''}.md" if found else None


def documents():
    """Returns the paths in the repository of the pages that are not in src/docs/pages."""
    below = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.md"))
    return [*_PAGE_OF, *(path for path in below if path not in _PAGE_OF)]


def target_of(path, link):
    """Returns the target of a link of the document `path`, as (path in the repository, "#anchor" or
    ""). None if it is not a file: an address elsewhere, or a heading of the same page."""
    place, hash_, anchor = link.partition("#")
    if not place or re.match(r"[a-z]+:", place):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), place)), hash_ + anchor


def links(path):
    """Returns the files that a document links to, by path in the repository."""
    found = set()
    for match in _LINK.finditer((ROOT / path).read_text()):
        target = match["target"] and target_of(path, match["target"])
        if target:
            found.add(target[0])
    return found


def site_path(target):
    """Returns the site's path of a linked file of the repository: a page, or the file as it is."""
    return page_of(target) or f"files/{target}"


def with_links_of_site(text, path):
    """Returns the document's text with the links that it has on the site."""
    here = posixpath.dirname(page_of(path))

    def replace(match):
        target = match["target"] and target_of(path, match["target"])
        if not target:
            return match[0]
        return f"]({posixpath.relpath(site_path(target[0]), here or '.')}{target[1]})"

    return _LINK.sub(replace, text)
