"""Fonts for pages that must be readable where a system has no font for a script.

The fonts are Noto Sans (SIL Open Font License 1.1). The packages that the scripts at hand need are fetched at run time
from the npm registry, as pinned in `fonts.json`; a page without one is shown in the fonts that the system has.

The fonts come in many small files, each for some characters, as style sheets name them; a page brings those that its
texts need.
"""

import json
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import langcodes

from ..data.emoji.benchmark import DEFAULT_CACHE
from ..data.npm import Package, fetch_package, file_integrity, read_package, tarball_of

logger = logging.getLogger(__name__)

FONTS = Path(__file__).with_name("fonts.json")
CREDIT = "Letters: Noto Sans, © The Noto Project Authors, SIL Open Font License 1.1"
# Every system has letters before this one: Latin, Greek and Cyrillic.
_FIRST_CODE = 0x0530


def fetch_fonts(languages: Iterable[str], folder: Path | None = None) -> None:
    """Fetches the fonts for these languages, for `web_fonts`; a warning names each script whose font cannot be had.

    Args:
        languages: BCP-47 tags.
        folder: the folder that keeps the packages; by default that of the emoji benchmark's packages.
    """
    folder = folder or DEFAULT_CACHE / "packages"
    scripts = set(map(script_of, languages))
    fonts = [font for font in json.loads(FONTS.read_text("utf-8")) if scripts.intersection(font["scripts"])]
    if foreign := scripts.difference(script for font in fonts for script in font["scripts"]):
        logger.warning("no font for the script %s: the system must have one", ", ".join(sorted(foreign)))
    with ThreadPoolExecutor() as pool:  # when no registry answers, all wait at the same time
        futures = [pool.submit(fetch_package, _package(font), folder, timeout=60) for font in fonts]
    for font, future in zip(fonts, futures, strict=True):
        try:
            future.result()
        except OSError as error:
            logger.warning("no font for the script %s: %s", ", ".join(font["scripts"]), error)


def script_of(language: str) -> str:
    """The ISO 15924 code of the script in which a language is written, from its tag or else the likely one."""
    return langcodes.Language.get(language).maximize().script or "Zyyy"


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
    """The fonts that texts need, with no more files than that. Packages that `fetch_fonts` has not fetched before are
    left out.

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
    package = _package(font)
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


def _package(font: dict[str, Any]) -> Package:
    return Package(font["package"], font["version"], font["integrity"])


def code_ranges(codes: str) -> list[range]:
    """The code points of a `unicode-range` of style sheets, such as `U+0400-045f,U+2116`."""
    return [_code_range(item) for item in codes.split(",")]


def _code_range(item: str) -> range:
    first, _, last = item.removeprefix("U+").partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)
