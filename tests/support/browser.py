"""A real browser for tests: Chromium without a window, driven by the DevTools protocol over a pipe.

https://chromedevtools.github.io/devtools-protocol/
"""

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


# The contrast of the colors of texts with the color behind them, of all elements with texts of their own; WCAG 2.2.
CONTRASTS = """
(() => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(c => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const color = channels(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
  };
  const found = {};
  for (const element of document.querySelectorAll("body *:not(title, desc)")) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(element);
    const own = channels(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [light, dark] = [luminance(own), luminance(behind(element))].sort((a, b) => b - a);
    const name = `${element.tagName} ${element.className.baseVal ?? element.className}`;
    found[name] = Math.min(found[name] ?? 99, (light + 0.05) / (dark + 0.05));
  }
  return found;
})()
"""
# The codes of keys without a letter that tests press.
KEYS = {
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "ArrowUp": 38,
    "End": 35,
    "Enter": 13,
    "Escape": 27,
    "Home": 36,
    "Tab": 9,
}


_NAVIGATED = "Inspected target navigated"


class NavigatedError(Exception):
    """The page went to another one before a command was answered."""


class Browser:
    """One page of a browser. `problems` are the errors and warnings of its console, and requests of other than data
    and of the server that the page comes from.

    Args:
        sender, receiver: the ends of the pipe.
    """

    def __init__(self, sender: Any, receiver: Any) -> None:
        self._sender, self._receiver = sender, receiver
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.problems: list[str] = []
        self._unread, self._loaded, self._own = b"", False, ("data:", "file:")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command; raises a NavigatedError if the page goes to another one meanwhile."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._sender.write(json.dumps(message).encode() + b"\0")
        self._sender.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if _NAVIGATED in answer.get("error", {}).get("message", ""):
                    raise NavigatedError(method)
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, page: Path | str, *, width: int = 1100, height: int = 900, scheme: str = "light") -> None:
        """Loads a file or an address in a window of this size, with a color scheme, and waits until its
        fonts are there, and the images of a file."""
        mobile = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.problems.clear()
        self._loaded = False
        address = page if isinstance(page, str) else page.resolve().as_uri()
        parts = urlsplit(address)
        self._own = ("data:", "file:") if parts.scheme == "file" else (f"{parts.scheme}://{parts.netloc}/", "blob:")
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._receive()
        self.run("document.fonts.ready.then(() => true)")
        if isinstance(page, Path):
            self.run("Promise.all([...document.images].map(i => i.decode()))")

    def wait_for(self, script: str, seconds: float = 20) -> None:
        """Waits until a JavaScript expression is true in the page."""
        end = time.monotonic() + seconds
        while not self._is_true(script):
            assert time.monotonic() < end, f"{script} is false after {seconds} s; {self.problems}"
            time.sleep(0.02)

    def _is_true(self, script: str) -> bool:
        try:
            return bool(self.run(f"Boolean({script})"))
        except NavigatedError:
            return False

    def type(self, text: str) -> None:
        """Types a text where the focus is, as a keyboard does, letter by letter."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="char", text=letter)

    def press(self, key: str) -> None:
        """Presses a key of `KEYS`."""
        facts: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        with suppress(NavigatedError):  # as Enter in a form may
            self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def choose_file(self, selector: str, file: Path) -> None:
        """Chooses a file in a field for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file.resolve())])

    def drop_file(self, file: Path, x: int = 200, y: int = 300) -> None:
        """Drags a file from another program over the page, and drops it once the page has drawn what it shows."""
        data = {"items": [], "files": [str(file.resolve())], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
            if kind != "drop":
                self.run("new Promise(requestAnimationFrame)")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

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
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(self._own):
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
