"""Checks every link of a built site: its file is there, with the anchor that it names, and no page
loads anything from elsewhere."""

import html.parser
import pathlib
import urllib.parse


class _Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        address = values.get("href") or values.get("src")
        if address:
            (self.links if tag == "a" else self.loads).append(address)


def check(site):
    """Returns the errors, a line for each link."""
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")
             if path.name != "404.html"}  # its links depend on the site's address
    wrong = []
    for path, page in sorted(pages.items()):
        for address in page.links + page.loads:
            parts = urllib.parse.urlsplit(address)
            name = path.relative_to(site)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    wrong.append(f"{name} loads {address} from elsewhere")
                continue
            place = urllib.parse.unquote(parts.path)
            target = pathlib.Path(path.parent, place).resolve() if place else path
            if not target.is_file():
                wrong.append(f"{name} links to {address}, which is not there")
            elif parts.fragment and target in pages and (
                    urllib.parse.unquote(parts.fragment) not in pages[target].anchors):
                wrong.append(f"{name} links to {address}, which has no such place")
    if not any(page.links for page in pages.values()):
        wrong.append("no page has a link")
    return wrong
