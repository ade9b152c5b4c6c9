"""The emoji benchmark: what four artists drew and what 120 languages call it, ready for training and evaluation.

Names come from Unicode CLDR, images from Twemoji, OpenMoji, Fluent and Noto. The first call fetches the pinned
packages and builds one parquet file in the Hugging Face cache; later calls read it. The benchmark asks four questions
about a model that learns languages: does it know unseen concepts, unseen vendors, languages that had translations
only, and languages it never saw?
"""

import hashlib
import json
import random
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset, DatasetInfo, config

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_languages
from .build import FEATURES, KEYWORD_SEPARATOR, MANIFEST_KEY, TABLE_VERSION, build_emoji, read_sources
from .concepts import SPLITS
from .images import VENDORS

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens"


def load_emoji(
    vendors: str | Sequence[str] | None = None,
    split: str | None = None,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    keyword_captions: int = 0,
    image_size: int = 64,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """The emoji benchmark as a caption corpus: one row for each vendor and concept that it draws.

    Columns:
        image: RGB, on white.
        image_id: the concept's code points, as `1f600`; the vendors share it.
        captions: the concept's CLDR name in each language.
        split: `train`, `validation` or `test`, by groups of concepts that resemble each other.
        vendor: `twemoji`, `openmoji`, `fluent` or `noto`.
        emoji: the characters.
        category: Unicode's, such as `Animals & Nature`; `Flags` are better reported apart.
        keywords: CLDR's keywords in each language, joined by `, `.

    Args:
        vendors: whose images; all by default.
        split: one side of the split; all by default.
        languages: whose names and keywords to keep; all by default.
        keyword_captions: give every image so many more captions in each language, each of its name and two of its
            keywords, or of three keywords, drawn for that image. They suit training: those of two languages speak of
            the same thing, but do not translate each other. No question of the benchmark asks with them.
        image_size: side of the images in pixels; each size is built once. Noto's have 64 pixels and are resized.
        cache_dir: where packages and tables are kept, by default `DEFAULT_CACHE`, in the cache of `datasets`.

    Raises:
        CorpusError: for a language, vendor or split that the benchmark does not have, or a size below one.
        LanguageTagError: for a string that names no language.
        SourceUnavailableError: the first time, when a package cannot be fetched.
        ImportError: the first time, when `babelens[emoji]` is not installed.
    """
    vendors = _listed("vendor", vendors, VENDORS)
    splits = _listed("split", split, SPLITS)
    path = _table_path(image_size, cache_dir)
    table = pq.read_table(path, filters=pc.field("vendor").isin(vendors) & pc.field("split").isin(splits))
    if languages is not None:
        table = _keep_languages(table, normalize_languages(languages))
    if keyword_captions:
        table = _with_keyword_captions(table, keyword_captions)
    table = table.replace_schema_metadata(FEATURES.arrow_schema.metadata)
    request = repr((path.name, sorted(vendors), sorted(splits), languages, keyword_captions))
    return Dataset(table, info=_info(), fingerprint=hashlib.sha256(request.encode()).hexdigest()[:16])


def emoji_manifest(image_size: int = 64, cache_dir: str | Path | None = None) -> dict[str, Any]:
    """What is in the benchmark: sources, images, splits, languages with their number of names, a digest of all."""
    metadata = pq.read_schema(_table_path(image_size, cache_dir)).metadata
    return json.loads(metadata[MANIFEST_KEY])


def published_manifest() -> dict[str, Any]:
    """The manifest at 64 pixels that came with this version of babelens: what everybody's build should come to."""
    return json.loads(files(__package__).joinpath("manifest.json").read_text("utf-8"))


def emoji_licenses() -> list[dict[str, str]]:
    """Whom to name where the benchmark is used: name, package, version, license, attribution, url of each source."""
    keys = {"title": "name", **{key: key for key in ("package", "version", "license", "attribution", "url")}}
    return [{name: source[key] for key, name in keys.items()} for source in read_sources().values()]


def _table_path(image_size: int, cache_dir: str | Path | None) -> Path:
    """The benchmark's file for this image size, built if it is not there."""
    if image_size < 1:
        raise CorpusError(f"image_size is the side of an image in pixels, not {image_size}")
    folder = Path(cache_dir or DEFAULT_CACHE)
    pins = json.dumps([TABLE_VERSION, read_sources()])
    path = folder / f"emoji-{image_size}px-{hashlib.sha256(pins.encode()).hexdigest()[:12]}.parquet"
    if not path.exists():
        build_emoji(path, folder / "packages", image_size)
    return path


def _keep_languages(table: pa.Table, languages: list[str]) -> pa.Table:
    """The table with the captions and keywords in `languages` only."""
    known = json.loads(table.schema.metadata[MANIFEST_KEY])["languages"]
    if missing := [tag for tag in languages if tag not in known]:
        raise CorpusError(f"the emoji benchmark has no names in {', '.join(missing)}; it has {', '.join(known)}")
    for column in ("captions", "keywords"):
        lists = table[column].combine_chunks()
        texts, rows = pc.list_flatten(lists), pc.list_parent_indices(lists)
        kept = pc.is_in(pc.struct_field(texts, "language"), value_set=pa.array(languages))
        counts = np.bincount(rows.filter(kept), minlength=len(table))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        filtered = pa.ListArray.from_arrays(offsets, texts.filter(kept), type=lists.type)
        table = table.set_column(table.column_names.index(column), table.field(column), filtered)
    return table


def _with_keyword_captions(table: pa.Table, count: int) -> pa.Table:
    """The table with `count` captions of keywords behind every row's own, in each language that has keywords."""
    columns = (table[name].to_pylist() for name in ("image_id", "vendor", "captions", "keywords"))
    captions = []
    for image_id, vendor, own, keywords in zip(*columns, strict=True):
        names = {caption["language"]: caption["text"] for caption in own}
        drawn = []
        for entry in keywords:
            language, words = entry["language"], entry["text"].split(KEYWORD_SEPARATOR)
            if language in names:
                draw = random.Random(f"{image_id} {vendor} {language}")  # the same wherever the benchmark is loaded
                texts = (_keyword_caption(names[language], words, draw) for _ in range(count))
                drawn += [{"language": language, "text": text} for text in texts]
        captions.append(own + drawn)
    field = table.field("captions")
    return table.set_column(table.column_names.index("captions"), field, pa.array(captions, field.type))


def _keyword_caption(name: str, keywords: list[str], draw: random.Random) -> str:
    chosen = draw.sample(keywords, min(3, len(keywords)))
    return " ".join([name, *chosen[:2]] if draw.random() < 0.5 else chosen)


def _info() -> DatasetInfo:
    sources = {source["title"]: source for source in read_sources().values()}.values()
    return DatasetInfo(
        features=FEATURES,
        description=(__doc__ or "").partition("\n\n")[0],
        license="; ".join(f"{source['title']}: {source['license']}" for source in sources),
        citation="\n".join(f"{source['attribution']} {source['url']}" for source in sources),
    )


def _listed(what: str, chosen: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """What was chosen as a list; None stands for all that are known."""
    values = list(known) if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    if unknown := [value for value in values if value not in known]:
        raise CorpusError(f"unknown {what} {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return values
