"""A page in headless Chromium, driven through chromedriver's WebDriver protocol, which is plain HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="Chromium or chromedriver is not installed")
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
]  # fmt: skip


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""chromedriver is on this machine, whatever proxy there is for others."""


@dataclass(frozen=True)
class Browser:
    """One window. ``session`` is its address at chromedriver."""

    session: str

    def open(self, page: Path, width: int = 1200, height: int = 900) -> None:
        """Loads the page in a window of that size, in pixels of the page."""
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1)
        self._call("url", url=page.resolve().as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._call("execute/sync", script=script, args=list(arguments))

    def click(self, selector: str) -> None:
        """A click of the mouse, as a user does it, on the first element that matches and is seen."""
        self._call(f"element/{self._seen(selector)}/click", post=True)

    def type(self, selector: str, text: str) -> None:
        """Keys pressed in the first element that matches and is seen."""
        self._call(f"element/{self._seen(selector)}/value", text=text)

    def _seen(self, selector: str) -> str:
        found = self._call("elements", using="css selector", value=selector)
        elements = (str(next(iter(f.values()))) for f in found)
        return next(e for e in elements if self._call(f"element/{e}/displayed"))

    def errors(self) -> list[str]:
        """What the page has complained about since the last call."""
        return [entry["message"] for entry in self._call("se/log", type="browser") if entry["level"] == "SEVERE"]

    def photograph(self, picture: Path, *, whole: bool = False) -> None:
        """The window, or the whole page, as PNG."""
        taken = self._devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        picture.write_bytes(b64decode(taken["data"]))

    def _devtools(self, command: str, **parameters: Any) -> Any:
        more = {"mobile": False} if command.startswith("Emulation") else {}
        return self._call("goog/cdp/execute", cmd=command, params={**parameters, **more})

    def _call(self, path: str, *, post: bool = False, **body: Any) -> Any:
        data = json.dumps(body).encode() if body or post else None
        request = urllib.request.Request(f"{self.session}/{path}", data, {"Content-Type": "application/json"})
        with _OPENER.open(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Starts Chromium with an empty profile, and ends it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(DRIVER), "--port=0"]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert driver.stdout is not None
            port = next(m[1] for line in driver.stdout if (m := re.search(r"successfully on port (\d+)", line)))
            options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            start = Browser(f"http://127.0.0.1:{port}")
            opened = start._call("session", capabilities={"alwaysMatch": wanted})
            window = Browser(f"{start.session}/session/{opened['sessionId']}")
            try:
                yield window
            finally:
                _OPENER.open(urllib.request.Request(window.session, method="DELETE"), timeout=PATIENCE).close()
        finally:
            driver.terminate()
            driver.wait(PATIENCE)


def main() -> None:
    """``python -m tests.browser PAGE PICTURE [WIDTH [HEIGHT]]``: a picture of a whole page; its errors on stdout."""
    import sys

    page, picture, *size = sys.argv[1:]
    with browser() as window:
        window.open(Path(page), *map(int, size))
        window.photograph(Path(picture), whole=len(size) < 2)
        print(*window.errors(), sep=os.linesep)


if __name__ == "__main__":
    main()
