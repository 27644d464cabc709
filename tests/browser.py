"""Chromium without a window, by its DevTools protocol on a pipe: what a page shows, and how it looks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: chromium)")
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--no-sandbox"),
    "--disable-extensions",
)


class Page:
    """A page of the browser.

    Attributes:
        requests: The URLs that it has asked for.
        complaints: What it has written to its console, and what its security policy has refused.
    """

    def __init__(self, into: int, answers: BinaryIO) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._into, self._answers = into, answers
        self._number, self._session = 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _read(self) -> bytes:
        parts = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts += byte
        return bytes(parts)

    def _note(self, event: str | None, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(about))

    def look(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the page, and the colours that its reader prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in JavaScript; a promise is awaited."""
        answer = self._run(script)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _run(self, script: str) -> Any:
        return self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)

    def wait(self, script: str, seconds: float = 60) -> Any:
        """Wait until an expression is true, and not an error, and return its value."""
        until = time.monotonic() + seconds
        while "exceptionDetails" in (answer := self._run(script)) or not (value := answer["result"].get("value")):
            assert time.monotonic() < until, f"{script} is not true; the page: {self.text()}"
            time.sleep(0.1)
        return value

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def save(self, file: Path) -> None:
        """Save a picture of the whole page."""
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))


@contextmanager
def open_browser() -> Iterator[Page]:
    """Start Chromium with an empty profile, and end it."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(CHROMIUM), *_FLAGS, f"--user-data-dir={profile}"]

        def place() -> None:
            read, write = os.dup(to_browser[0]), os.dup(from_browser[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        browser = subprocess.Popen(
            command, preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            with os.fdopen(from_browser[0], "rb") as answers:
                yield Page(to_browser[1], answers)
        finally:
            os.close(to_browser[1])  # Chromium ends with its pipe
            try:
                browser.wait(20)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
