"""Drives the system's Chromium by Playwright of build/browser-tools: setup.sh --browser.
`Browser.missing()` says why reports cannot be looked at here."""

import base64
import importlib.util
import pathlib
import shutil
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "build/browser-tools"))
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


class Browser:
    """A browser with one page. Collects what the page complains of and asks for."""

    def __init__(self):
        from playwright.sync_api import sync_playwright
        self.playwright = sync_playwright().start()
        program = next(filter(None, map(shutil.which, NAMES)))
        self.browser = self.playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"])
        self.version = self.browser.version
        self.page = self.browser.new_page(reduced_motion="reduce")
        self.complaints, self.requests = [], []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type in ("error", "warning", "assert") and
                     self.complaints.append(said.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.run, self.press = self.page.evaluate, self.page.keyboard.press

    @staticmethod
    def missing():
        """Returns what is missing here, or None."""
        if not any(map(shutil.which, NAMES)):
            return "no Chromium"
        found = all(importlib.util.find_spec(name) for name in ("playwright", "PIL"))
        return None if found else "no Playwright or Pillow"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()
        self.playwright.stop()

    def view(self, width, height=900, dark=False):
        """Sets the window and the colours that the page is to prefer."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")

    def frame(self):
        """Waits until two frames were drawn: all that observers of sizes do is then done."""
        self.run(FRAMES)

    def open(self, file):
        """Opens a file and waits until it is drawn. Returns the seconds that took."""
        begin = time.monotonic()
        self.page.goto(pathlib.Path(file).resolve().as_uri())
        self.frame()
        return time.monotonic() - begin

    def picture(self, box):
        """Returns a PNG of a box of the page: x, y, width and height."""
        # By the protocol, since Playwright's own call waits for ever for a document that is an SVG.
        shot = self.page.context.new_cdp_session(self.page).send("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True, "clip": {**box, "scale": 1}})
        return base64.b64decode(shot["data"])

    def printed(self):
        """Returns a PDF of the page."""
        return self.page.pdf(print_background=True)
