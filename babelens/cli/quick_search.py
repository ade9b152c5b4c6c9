"""Searching again without loading the model, for `babelens search`; without torch."""

from pathlib import Path

from ..inference.quick_search import quick_search
from .search_results import show_images


def searched_quickly(
    model: str, folder: Path, query: str, language: str, *, top: int, sheet: Path | None, as_json: bool
) -> bool:
    """Prints the result of a search that needs no model (`inference.quick_search`); False when it needs one."""
    found = quick_search(model, folder, query, language, top)
    if found is None:
        return False
    images, count = found
    show_images(images, query, language, folder=folder, n_images=count, skipped={}, sheet=sheet, as_json=as_json)
    return True
