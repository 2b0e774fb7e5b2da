"""Hooks for the tasks that mkdocs does not do: documents of the repository as pages, generated text,
and a check of all links of the built site."""

import os
import pathlib
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

sys.path.insert(0, os.path.dirname(__file__))
import command_line  # noqa: E402
import documents  # noqa: E402
import figures  # noqa: E402
import headers  # noqa: E402
import link_check  # noqa: E402
import operations  # noqa: E402
import python_names  # noqa: E402

# The text that replaces a line that ends in <!-- generated: NAME -->.
_GENERATED = {
    "command line": command_line.reference,
    "c": lambda: headers.reference("c"),
    "cpp": lambda: headers.reference("cpp"),
    "figures": figures.reference,
    "chart": figures.chart,
    "operations": operations.reference,
    "gpus": operations.gpus,
    **figures.TABLES,
}


def _anchor(title, separator):
    """Returns the anchor of a heading, as documents of the repository name it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


def on_config(config):
    """Returns every operation's page, and below it the pages of its templates."""
    config.mdx_configs["toc"]["slugify"] = _anchor
    for section in config.nav:
        if "Operations" in section:
            for name, templates in operations.names():
                pages = [{name: f"operations/{name}.md"}]
                pages += [{each: f"operations/{name}/{each}.md"} for each in templates]
                section["Operations"].append({name: pages})
    return config


def on_files(files, config):
    pages = [path.relative_to(documents.ROOT).as_posix()
             for path in pathlib.Path(config.docs_dir).rglob("*.md")]
    linked = set()
    for path in [*pages, *documents.documents()]:
        linked |= documents.links(path)
        if path not in pages:
            notes = path.endswith("NOTES.md")  # which the template's own page links to
            files.append(File.generated(
                config, documents.page_of(path), abs_src_path=str(documents.ROOT / path),
                inclusion=InclusionLevel.NOT_IN_NAV if notes else InclusionLevel.UNDEFINED))
    for path in sorted(linked):
        if not (documents.ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is no file of the repository")
        if not documents.page_of(path):
            files.append(File.generated(config, documents.site_path(path),
                                        abs_src_path=str(documents.ROOT / path),
                                        inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown, page, **_):
    path = pathlib.Path(page.file.abs_src_path).relative_to(documents.ROOT).as_posix()
    markdown = documents.with_links_of_site(markdown, path)
    markdown = re.sub(r"(?m)^.*<!-- generated: (.*?) -->$", lambda found: _GENERATED[found[1]](), markdown)
    return re.sub(r"(?s)<!--.*?-->\n?", "", markdown)  # comments that only the tests read


def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    wrong = link_check.check(site)
    wrong += [f"the Python reference lacks {name}"
              for name in python_names.missing((site / "reference/python.html").read_text())]
    if wrong:
        raise PluginError("\n".join(wrong))
