"""Pages of the documentation as tests read them, and the folder in which their examples run."""

import re
from pathlib import Path

from tiny_native import saved, tiny_clip
from tiny_training import write_shapes

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(folder: str) -> dict[str, str]:
    """The pages of a folder, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / folder).glob("*.md"))}


def blocks(text: str, language: str) -> list[str]:
    """The code blocks in a language."""
    return [code for found, _, code in BLOCK.findall(text) if found == language]


def write_example_data(folder: Path) -> None:
    """What the examples read: `photos`, `pairs.tsv` and a CLIP."""
    photos = folder / "photos"
    photos.mkdir()
    write_shapes(photos)
    (photos / "pairs.tsv").rename(folder / "pairs.tsv")
    saved(tiny_clip(), folder / "clip")
