import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def problems_of(page: Any) -> list[str]:
    """A list to which a page adds its errors, its console's errors and warnings, and its requests to other sites."""
    problems: list[str] = []

    def check_console(message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            problems.append(message.text)

    def check_request(request: Any) -> None:
        own = urlsplit(request.frame.url if not request.is_navigation_request() else request.url).netloc
        if urlsplit(request.url).scheme not in ("data", "blob") and urlsplit(request.url).netloc != own:
            problems.append(f"requested {request.url[:200]}")

    page.on("console", check_console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", check_request)
    return problems


def wait_until(page: Any, condition: str) -> None:
    """Waits until JavaScript is true; `wait_for_function` evaluates within the page, which its policy forbids."""
    page.evaluate(f"async () => {{ while (!({condition})) await new Promise(requestAnimationFrame); }}")
