"""Drives a headless Chromium by its DevTools protocol over two pipes, with Python's own library alone.
`Browser.found()` says where one is."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Browser:
    """A browser with one page. What the page says, asks for or fails with is collected."""

    def __init__(self, program, patience=60):
        self.patience = patience
        self.folder = tempfile.TemporaryDirectory(prefix="kernwright-browser-")
        # The browser reads commands from descriptor 3 and writes what happens to descriptor 4.
        read_commands, self.commands = os.pipe()
        self.answers, write_answers = os.pipe()

        def connect():
            first, second = os.dup(read_commands), os.dup(write_answers)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--hide-scrollbars", "--font-render-hinting=none", "--disable-dev-shm-usage",
             "--disable-background-networking", "--disable-component-update", "--no-first-run",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=connect, close_fds=False)
        os.close(read_commands)
        os.close(write_answers)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.complaints = []
        self.requests = []
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    @staticmethod
    def found():
        """The path of a browser, or None."""
        return next(filter(None, map(shutil.which, NAMES)), None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        try:
            self.folder.cleanup()
        except OSError:
            shutil.rmtree(self.folder.name, ignore_errors=True)  # a child may still write there

    def message(self):
        """The next message of the browser."""
        until = time.monotonic() + self.patience
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, until - time.monotonic()))
            chunk = os.read(self.answers, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("the browser says nothing" if not ready else "the browser has ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def hear(self, message):
        """Collects an event."""
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([one.get("value") for one in values["args"]]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        self.events.append(method)

    def call(self, method, **parameters):
        """Calls a method of the protocol, and gives its result."""
        self.number += 1
        call = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.commands, json.dumps(call).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") != self.number:
                self.hear(message)
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            return message["result"]

    def view(self, width, height=900, dark=False, media="screen"):
        """Sets the window and what the page is to prefer."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, file):
        """Opens a file and waits until it is drawn. Gives the seconds that took."""
        self.events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self.hear(self.message())
        self.frame()
        return time.monotonic() - begin

    def frame(self):
        """Waits until two frames were drawn: all that observers of sizes do is then done."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, expression):
        """The value of an expression of the page."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", expression))
        return result["result"].get("value")

    def press(self, key):
        """Presses a key, such as ArrowDown or Enter."""
        text = {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                      **(text if kind == "keyDown" else {}))

    def picture(self, box=None):
        """A PNG of the page, or of a box of it: x, y, width and height."""
        clip = {"clip": {**box, "scale": 1}} if box else {}
        return base64.b64decode(
            self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)["data"])

    def printed(self):
        """A PDF of the page."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
