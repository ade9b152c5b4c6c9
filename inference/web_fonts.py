"""Fonts for pages that must be readable where a system has no font for a script: the parts of the fonts of `lettering`
that some texts need.

The fonts come in many small files, each for some characters, as style sheets name them. Nothing is fetched: packages
that were not fetched before, by a gallery that `lettering` wrote, are left out.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.emoji.benchmark import DEFAULT_CACHE
from ..data.npm import Package, file_integrity, read_package, tarball_of
from .lettering import FONTS, code_ranges, script_of

# Every system has letters before this one: Latin, Greek and Cyrillic.
_FIRST_CODE = 0x0530


@dataclass(frozen=True)
class WebFont:
    """A font for some languages.

    Args:
        languages: the languages.
        files: its files in WOFF2, each with the characters that it is for, as the `unicode-range` of a style sheet.
    """

    languages: list[str]
    files: list[tuple[bytes, str]]


def web_fonts(texts: Iterable[tuple[str, str]], folder: Path | None = None) -> list[WebFont]:
    """The fonts that texts need, with no more files than that.

    Args:
        texts: texts with their languages.
        folder: the folder of packages; by default that of the emoji benchmark's.
    """
    letters: dict[str, set[str]] = {}
    for text, language in texts:
        letters.setdefault(language, set()).update(letter for letter in text if ord(letter) >= _FIRST_CODE)
    found = []
    for font in json.loads(FONTS.read_text("utf-8")):
        languages = [tag for tag, own in letters.items() if own and script_of(tag) in font["scripts"]]
        if languages:
            needed = set().union(*(letters[language] for language in languages))
            files = _files_for(needed, font, folder or DEFAULT_CACHE / "packages")
            found += [WebFont(languages, files)] if files else []
    return found


def _files_for(letters: set[str], font: dict[str, Any], folder: Path) -> list[tuple[bytes, str]]:
    """The files of a package, the last that is declared for a letter, as in style sheets."""
    package = Package(font["package"], font["version"], font["integrity"])
    tarball = tarball_of(package, folder)
    if not tarball.is_file() or file_integrity(tarball) != package.integrity:
        return []
    files = {path.name: data for path, data in read_package(tarball, lambda path: path.suffix in (".json", ".woff2"))}
    chosen: dict[str, str] = {}
    for subset, codes in reversed(json.loads(files["unicode.json"]).items()):
        here = {letter for letter in letters if any(ord(letter) in part for part in code_ranges(codes))}
        letters = letters - here
        if here:
            chosen[subset] = codes
    endings = {f"-{subset.strip('[]')}-wght-normal.woff2": codes for subset, codes in chosen.items()}
    return [
        (next(data for name, data in files.items() if name.endswith(ending)), codes)
        for ending, codes in endings.items()
    ]
