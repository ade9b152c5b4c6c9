"""Writing text in any language into an image, without boxes in the place of missing letters.

The fonts are Noto Sans (SIL Open Font License 1.1). The packages that the scripts at hand need are fetched at run time
from the npm registry, as pinned in `fonts.json`. Without network or npm, Pillow's built-in font writes English.
Scripts whose letters join or reorder, and scripts written from right to left, also need Pillow's Raqm layout
(`PIL.features.check("raqm")`). `Lettering.can_write` reports whether a text would be readable, so that its language
can be written instead.
"""

import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Self, cast

import langcodes
from PIL import ImageDraw, ImageFont, features

from ..data.emoji.benchmark import DEFAULT_CACHE
from ..data.npm import Package, fetch_package, file_integrity, read_package, tarball_of

logger = logging.getLogger(__name__)

FONTS = Path(__file__).with_name("fonts.json")
CREDIT = "Letters: Noto Sans, © The Noto Project Authors, SIL Open Font License 1.1"
_NEEDS_RAQM = frozenset({"Arab", "Beng", "Deva", "Hebr", "Taml", "Telu", "Thai"})
_RIGHT_TO_LEFT = frozenset({"Arab", "Hebr"})
_REGULAR_WEIGHT = 400
_IN_NO_FONT = "\U0010ffff"


class Face:
    """A font file with the code points that it is used for; without `data`, the font that is built into Pillow."""

    def __init__(self, data: bytes | None, codes: Sequence[range]) -> None:
        self._data = data
        self._codes = codes
        self._fonts: dict[int, ImageFont.FreeTypeFont] = {}
        self._has: dict[str, bool] = {}

    def font(self, size: int) -> ImageFont.FreeTypeFont:
        if size not in self._fonts:
            if self._data is None:
                self._fonts[size] = cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
            else:
                self._fonts[size] = ImageFont.truetype(BytesIO(self._data), size)
                self._fonts[size].set_variation_by_axes([_REGULAR_WEIGHT])
        return self._fonts[size]

    def is_for(self, character: str) -> bool:
        return any(ord(character) in codes for codes in self._codes) and self.has(character)

    def has(self, character: str) -> bool:
        """Whether the font has a glyph for this character, instead of the box for missing ones."""
        if character not in self._has:
            mask = self.font(16).getmask
            self._has[character] = bytes(mask(character)) != bytes(mask(_IN_NO_FONT))
        return self._has[character]


_BUILT_IN = Face(data=None, codes=[range(0x20, 0x2100)])


class Lettering:
    """Writes texts with the fonts that it has: `Lettering()` writes English, `Lettering.fetch(languages)` more.

    Args:
        faces: faces by ISO 15924 script; those of `Latn` also serve every other script for digits, punctuation and
            names.
    """

    def __init__(self, faces: dict[str, Sequence[Face]] | None = None) -> None:
        self._faces = faces or {}

    @classmethod
    def fetch(cls, languages: Iterable[str], folder: Path | None = None) -> Self:
        """Fetches the fonts for these languages; a warning names each script whose font cannot be fetched.

        Args:
            languages: BCP-47 tags.
            folder: the folder that keeps the packages; by default that of the emoji benchmark's packages.
        """
        folder = folder or DEFAULT_CACHE / "packages"
        scripts = {"Latn", *map(script_of, languages)}
        fonts = [font for font in json.loads(FONTS.read_text("utf-8")) if scripts.intersection(font["scripts"])]
        if foreign := scripts.difference(script for font in fonts for script in font["scripts"]):
            logger.warning(
                "no font for the script %s: its texts are shown by their language", ", ".join(sorted(foreign))
            )
        fetched: dict[str, Sequence[Face]] = {}
        with ThreadPoolExecutor() as pool:  # when no registry answers, all wait at the same time
            futures = [pool.submit(_fetch_faces, font, folder) for font in fonts]
        for font, future in zip(fonts, futures, strict=True):
            try:
                fetched |= dict.fromkeys(font["scripts"], future.result())
            except (OSError, ImportError) as error:
                logger.warning("no font for the script %s: %s", ", ".join(font["scripts"]), error)
        return cls(fetched)

    def can_write(self, text: str, language: str) -> bool:
        """Whether the fonts have every character, and the layout of the script is supported."""
        if script_of(language) in _NEEDS_RAQM and not features.check("raqm"):
            return False
        return all(face is not None for _, face in self._runs(text, language))

    def length(self, text: str, language: str, size: int) -> float:
        """The width of a line in pixels."""
        return sum(face.font(size).getlength(run) for run, face in self._runs(text, language) if face)

    def draw(
        self,
        canvas: ImageDraw.ImageDraw,
        position: tuple[float, float],
        text: str,
        language: str,
        size: int,
        fill: str,
    ) -> None:
        """Draws one line of a text that `can_write`; `position` is the left end of its baseline."""
        x, baseline = position
        runs = [(run, face) for run, face in self._runs(text, language) if face]
        direction = "rtl" if script_of(language) in _RIGHT_TO_LEFT else None
        for run, face in reversed(runs) if direction == "rtl" else runs:
            font = face.font(size)
            canvas.text((x, baseline), run, fill=fill, font=font, anchor="ls", direction=direction)
            x += font.getlength(run, direction=direction)

    def shortened(self, text: str, language: str, size: int, width: float) -> str:
        """The text as a line of at most `width` pixels; what does not fit is cut with an ellipsis."""
        text = " ".join(text.split())
        if self.length(text, language, size) <= width:
            return text
        while text and self.length(f"{text}…", language, size) > width:
            text = text[:-1]
        return f"{text.rstrip()}…"

    def _runs(self, text: str, language: str) -> Iterator[tuple[str, Face | None]]:
        """The text in pieces of one face each, None where there is no face. A face is kept as long as it has the
        characters, so that letters that join stay together."""
        faces = [*self._faces.get(script_of(language), ()), *self._faces.get("Latn", ()), _BUILT_IN]
        run, current = "", None
        for character in unicodedata.normalize("NFC", text):
            if current is not None and (current.has(character) or unicodedata.category(character) == "Cf"):
                run += character
                continue
            face = next((face for face in faces if face.is_for(character)), None)
            if run and face is not current:
                yield run, current
                run = ""
            run, current = run + character, face
        if run:
            yield run, current


def script_of(language: str) -> str:
    """The ISO 15924 code of the script in which a language is written, from its tag or else the likely one."""
    return langcodes.Language.get(language).maximize().script or "Zyyy"


def _fetch_faces(font: dict[str, Any], folder: Path) -> list[Face]:
    """The upright faces in the Fontsource package of an entry of `fonts.json`; they come in many small files.

    Raises:
        OSError: when the package cannot be had, or Pillow was built without Brotli and cannot read its files.
    """
    package = Package(font["package"], font["version"], font["integrity"])
    tarball = fetch_package(package, folder, timeout=60)
    files = {path.name: data for path, data in read_package(tarball, lambda path: path.suffix in (".json", ".woff2"))}
    faces = []
    for subset, codes in json.loads(files["unicode.json"]).items():
        suffix = f"-{subset.strip('[]')}-wght-normal.woff2"
        data = next(data for name, data in files.items() if name.endswith(suffix))
        faces.append(Face(data, code_ranges(codes)))
    faces[0].font(16)
    return faces[::-1]  # as in CSS, the last that is declared for a character has precedence


def code_ranges(codes: str) -> list[range]:
    """The code points of a `unicode-range` of style sheets, such as `U+0400-045f,U+2116`."""
    return [_code_range(item) for item in codes.split(",")]


def _code_range(item: str) -> range:
    first, _, last = item.removeprefix("U+").partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


# ---- Web fonts ----
# Fonts for pages that must be readable where a system has no font for a script: the parts of the fonts of
# `lettering` that some texts need.
#
# The fonts come in many small files, each for some characters, as style sheets name them. Nothing is fetched here:
# packages that `Lettering.fetch` has not fetched before are left out.

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
