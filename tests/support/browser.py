"""A real browser for tests: Chromium without a window, driven by the DevTools protocol over a pipe.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """One page of a browser. `problems` are the errors and warnings of its console, and requests of other than data.

    Args:
        sender, receiver: the ends of the pipe.
    """

    def __init__(self, sender: Any, receiver: Any) -> None:
        self._sender, self._receiver = sender, receiver
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.problems: list[str] = []
        self._unread, self._loaded = b"", False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._sender.write(json.dumps(message).encode() + b"\0")
        self._sender.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, file: Path, *, width: int = 1100, height: int = 900, scheme: str = "light") -> None:
        """Loads a file in a window of this size, with a color scheme, and waits until fonts and images are there."""
        mobile = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.problems.clear()
        self._loaded = False
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not self._loaded:
            self._receive()
        self.run("document.fonts.ready.then(() => Promise.all([...document.images].map(i => i.decode())))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """An image of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def _receive(self) -> dict[str, Any]:
        """The next message, after noting what it tells."""
        while b"\0" not in self._unread:
            part = self._receiver.read1()
            assert part, "the browser has ended"
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        answer = json.loads(message)
        self._note(answer)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')[:200]}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(str(params["args"]))
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("data:", "file:")):
                self.problems.append(f"requested {params['request']['url'][:200]}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile is in a folder; the test is skipped where there is none.

    It reads from file descriptor 3 and writes to 4, which a shell makes of the ends of two pipes.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
    ]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", program, *options],
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    with os.fdopen(to_write, "wb") as sender, os.fdopen(from_read, "rb") as receiver:
        try:
            yield Browser(sender, receiver)
        finally:
            process.terminate()
            process.wait(timeout=20)
