"""Reads the emoji of a vendor from its package, and renders them as RGB PNGs of one size.

Images have a white background. A transparent one would be shown as black or white, depending on the program that opens
the file. Twemoji, OpenMoji (colour) and Fluent are SVG files, which are rasterized at the requested size; Noto has PNG
files of 64 pixels, which are resized to other sizes. Of Fluent's two colour sets, the shaded one ("modern") is used:
in this package some flat drawings show another emoji (🐱 shows 😺, 🔳 shows ◼). Fluent has no flags of countries, no
couples and no families; Fluent and Twemoji lack the newest emoji.
"""

import io
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from ...configuration.errors import MissingExtraError
from ..npm import read_package
from .concepts import Concept, concept_id

VENDORS = ("twemoji", "openmoji", "fluent", "noto")

_FOLDERS = {
    "twemoji": "package",
    "openmoji": "package/color/svg",
    "fluent": "package/icons/modern",
    "noto": "package/img/google/64",
}
# Fluent's files are named after English names, of which these differ from CLDR's.
_FLUENT_NAMES = {
    "black bird": "blackbird",
    "deaf man": "man deaf",
    "deaf person": "person deaf",
    "deaf woman": "woman deaf",
    "elf": "person elf",
    "enraged face": "pouting face",
    "face with crossed-out eyes": "knocked-out face",
    "fairy": "person fairy",
    "genie": "person genie",
    "keycap: #": "keycap hashtag",
    "keycap: *": "keycap asterisk",
    "mage": "person mage",
    "man: blond hair": "man blonde hair",
    "men with bunny ears": "man with bunny ears",
    "men wrestling": "man wrestling",
    "mermaid": "woman merpeople",
    "merman": "man merpeople",
    "merperson": "person merpeople",
    "people with bunny ears": "person with bunny ears",
    "people wrestling": "person wrestling",
    "person: blond hair": "person blonde hair",
    "phoenix": "phoenix bird",
    "red triangle pointed up": "red triangle",
    "smiling face with open hands": "hugging face",
    "stuffed flatbread": "stuffedbread",
    "superhero": "person superhero",
    "supervillain": "person supervillain",
    "vampire": "person vampire",
    "woman: blond hair": "woman blonde hair",
    "women with bunny ears": "woman with bunny ears",
    "women wrestling": "woman wrestling",
    "zombie": "person zombie",
}
# Noto's file for the flag of Sark shows the flag of Saudi Arabia.
_WRONG = {("noto", "1f1e8-1f1f6")}


def read_drawings(vendor: str, tarball: Path, concepts: Sequence[Concept]) -> dict[str, bytes]:
    """Concept id -> content of its SVG or PNG file, for the concepts that a vendor draws, in the order of
    `concepts`."""
    concept_of = _fluent_concepts(concepts).get if vendor == "fluent" else _concept_of_code_points
    wanted = {concept.id for concept in concepts if (vendor, concept.id) not in _WRONG}

    def draws_wanted(path: PurePosixPath) -> bool:
        is_drawing = str(path.parent) == _FOLDERS[vendor] and path.suffix in (".svg", ".png")
        return is_drawing and concept_of(path.stem) in wanted

    drawings = {concept_of(path.stem): content for path, content in read_package(tarball, draws_wanted)}
    return {concept.id: drawings[concept.id] for concept in concepts if concept.id in drawings}


def render(drawing: bytes, size: int) -> Image.Image:
    """Renders an SVG or PNG file as an RGB image on white; a drawing that is not square is centred.

    Args:
        drawing: the content of the file.
        size: width and height of the image in pixels.

    Raises:
        MissingExtraError: if `resvg_py` is needed and not installed.
    """
    if drawing.startswith(b"\x89PNG"):
        image = Image.open(io.BytesIO(drawing)).convert("RGBA")
        if image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.LANCZOS)
    else:
        image = _rasterize(drawing.decode("utf-8"), size)
    canvas = Image.new("RGBA", (size, size), "white")
    canvas.alpha_composite(image, ((size - image.width) // 2, (size - image.height) // 2))
    return canvas.convert("RGB")


def encode_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _rasterize(svg: str, size: int) -> Image.Image:
    try:
        import resvg_py
    except ImportError as error:
        raise MissingExtraError(
            "drawing the emoji benchmark needs an SVG rasteriser: pip install 'babelens[emoji]'"
        ) from error
    # Without system fonts the images are the same on every machine.
    png = resvg_py.svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True)
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA")


def _concept_of_code_points(stem: str) -> str:
    """`1F468-200D-2695-FE0F` -> `1f468-200d-2695`; vendors differ in case, leading zeros and variation selectors."""
    return concept_id("".join(chr(int(code_point, 16)) for code_point in stem.split("-")))


def _fluent_concepts(concepts: Sequence[Concept]) -> dict[str, str]:
    """Fluent's file stem -> concept id; emoji that have skin tones are drawn without one in `…-default`."""
    stems: dict[str, str] = {}
    for concept in concepts:
        stem = _slug(_FLUENT_NAMES.get(concept.name, concept.name))
        stems |= {stem: concept.id, f"{stem}-default": concept.id}
    return stems


def _slug(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")
