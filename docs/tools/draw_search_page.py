"""Draws the screenshots of the page of `babelens serve` for the documentation, with Chromium.

    make serve                       # trains the demo's model and writes Noto's emoji, unless they are there; Ctrl-C
    python docs/tools/draw_search_page.py runs/demo-mural runs/emoji

The images are Noto Emoji, © Google LLC, Apache-2.0.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

CHECKOUT = Path(__file__).parents[2]
sys.path.insert(0, str(CHECKOUT / "tests/support"))

from browser import Browser, browser  # noqa: E402
from served import serving  # noqa: E402

from babelens import Embedder  # noqa: E402
from babelens.serving import ImageService  # noqa: E402

FOLDER = CHECKOUT / "docs/how-to"
DESKTOP = {"width": 1000, "height": 640, "scheme": "light"}
PHONE = {"width": 360, "height": 640, "scheme": "dark"}
# The page opens with pictures before it shows what it finds. Images further down are loaded when they are scrolled to.
SHOWN = (
    "document.getElementById('status').textContent.startsWith('Best') && !results.hasAttribute('aria-busy') && "
    "[...results.querySelectorAll('img[loading=eager]')].every(i => i.complete)"
)


def draw(page: Browser, address: str, query: str, language: str, name: str, window: dict) -> None:
    """Draws the answer to a query in a window."""
    page.open(f"{address}?q={quote(query)}&language={language}", **window)
    page.wait_for(SHOWN)
    page.screenshot(FOLDER / name, whole=False)
    print(f"{name}: {(FOLDER / name).stat().st_size / 1024:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    options = parser.parse_args()
    embedder = Embedder.from_pretrained(options.model)
    service = ImageService.of_folder(embedder, options.images, model=str(options.model))
    with TemporaryDirectory() as profile, serving(service) as server, browser(Path(profile)) as page:
        draw(page, server.address, "moyo mwekundu", "sw", "serve-desktop.webp", DESKTOP)
        draw(page, server.address, "červené srdce", "cs", "serve-phone.webp", PHONE)


if __name__ == "__main__":
    main()
