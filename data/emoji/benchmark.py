"""The emoji benchmark: emoji by four vendors with their names in 120 languages, for training and evaluation.

Names come from Unicode CLDR, images from Twemoji, OpenMoji, Fluent and Noto, in pinned packages. The benchmark
measures generalization to unseen concepts, vendors and languages, and to languages with translation pairs only.
"""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset, DatasetInfo, config

from ...utils.errors import CorpusError
from ...utils.files import atomic_file
from ...utils.languages import normalize_languages
from ..corpus.text_languages import VERSION, LanguageProfiles, counts_of
from .build import (
    FEATURES,
    IMAGE_SIZE,
    KEYWORD_SEPARATOR,
    SPLITS,
    TABLE_VERSION,
    VENDORS,
    Annotation,
    annotation_files,
    annotations_in,
    build_emoji,
    fetch_package,
    read_sources,
)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens"


def load_emoji(
    vendors: str | Sequence[str] | None = None,
    split: str | None = None,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    keyword_captions: int = 0,
    cache_dir: str | Path | None = None,
) -> Dataset:
    """Loads the emoji benchmark as a caption corpus with one row for each vendor and each concept that it draws.

    Columns: `image` (RGB, 64 pixels wide and high, on white), `image_id` (the code points of the concept, such as
    `1f600`; the same for all vendors), `captions` (its CLDR name in each language), `split` (by groups of concepts
    that resemble each other), `vendor` (`twemoji`, `openmoji`, `fluent` or `noto`), `emoji` (its characters),
    `category` (Unicode's, such as `Animals & Nature`; results for `Flags` are best reported separately), and
    `keywords` (CLDR's in each language, joined by `, `). For training, `keyword_captions` is the number of additional
    captions of each image and language: the name and two keywords, or three keywords, sampled for that image; those of
    two languages are not translations. Packages and tables are in `cache_dir`, by default in the cache of `datasets`.

    Examples:
        >>> corpus = load_emoji(["twemoji"], split="train", languages=["en", "de"])
        >>> corpus[0]["captions"]
    """
    vendors = _listed("vendor", vendors, VENDORS)
    splits = _listed("split", split, SPLITS)
    path = _table_path(cache_dir)
    table = pq.read_table(path, filters=pc.field("vendor").isin(vendors) & pc.field("split").isin(splits))
    if languages is not None:
        table = _keep_languages(table, normalize_languages(languages))
    if keyword_captions:
        table = _with_keyword_captions(table, keyword_captions)
    table = table.replace_schema_metadata(FEATURES.arrow_schema.metadata)
    sources = {source["title"]: source for source in read_sources().values()}.values()
    info = DatasetInfo(
        features=FEATURES,
        description=(__doc__ or "").partition("\n\n")[0],
        license="; ".join(f"{source['title']}: {source['license']}" for source in sources),
        citation="\n".join(f"{source['attribution']} {source['url']}" for source in sources),
    )
    request = repr((path.name, sorted(vendors), sorted(splits), languages, keyword_captions))
    return Dataset(table, info=info, fingerprint=hashlib.sha256(request.encode()).hexdigest()[:16])


def published_manifest() -> dict[str, Any]:
    """Returns the counts, languages and splits of the benchmark, and the digest of its texts and pixels."""
    return json.loads(files(__package__).joinpath("manifest.json").read_text("utf-8"))


def emoji_licenses() -> list[dict[str, str]]:
    """Returns the name, package, version, license, attribution and url of each source."""
    keys = {"title": "name", **{key: key for key in ("package", "version", "license", "attribution", "url")}}
    return [{name: source[key] for key, name in keys.items()} for source in read_sources().values()]


def _table_path(cache_dir: str | Path | None) -> Path:
    """Returns the file of the benchmark, which is built if it is missing."""
    folder = Path(cache_dir or DEFAULT_CACHE)
    pins = json.dumps([TABLE_VERSION, read_sources()])
    path = folder / f"emoji-{IMAGE_SIZE}px-{hashlib.sha256(pins.encode()).hexdigest()[:12]}.parquet"
    if not path.exists():
        build_emoji(path, folder / "packages")
    return path


def _keep_languages(table: pa.Table, languages: list[str]) -> pa.Table:
    known = pc.unique(pc.struct_field(pc.list_flatten(table["captions"]), "language")).to_pylist()
    if missing := [tag for tag in languages if tag not in known]:
        there = ", ".join(sorted(known))
        raise CorpusError(f"the emoji benchmark has no names in {', '.join(missing)}; it has {there}")
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
    """Adds `count` captions made of keywords to each row, for each language that has keywords."""
    captions = []
    for row in table.select(["image_id", "vendor", "captions", "keywords"]).to_pylist():
        names = {caption["language"]: caption["text"] for caption in row["captions"]}
        added = []
        for language, words in words_by_language(row["keywords"]).items():
            rng = random.Random(f"{row['image_id']} {row['vendor']} {language}")  # the same wherever it is loaded
            for _ in range(count if words and names.get(language) else 0):
                chosen = rng.sample(words, min(3, len(words)))
                text = " ".join([names[language], *chosen[:2]] if rng.random() < 0.5 else chosen)
                added.append({"language": language, "text": text})
        captions.append(row["captions"] + added)
    return with_column(table, "captions", captions)


def words_by_language(keywords: list[dict[str, str]]) -> dict[str, list[str]]:
    """Returns language -> keywords; CLDR has none for some emoji."""
    return {
        entry["language"]: [word for word in entry["text"].split(KEYWORD_SEPARATOR) if word.strip()]
        for entry in keywords
    }


def with_column(table: pa.Table, name: str, cells: Sequence[Any]) -> pa.Table:
    field = table.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(cells, field.type))


def _listed(what: str, chosen: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Returns the chosen values as a list; all known values for None."""
    values = list(known) if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    if unknown := [value for value in values if value not in known]:
        raise CorpusError(f"unknown {what} {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return values


# ---- Names as translations ----
# CLDR's names and keywords of emoji: some 3,500 short texts about things, animals, people and places in each of about
# 120 languages, with the same in English. They complement the few sentences from which a language is learned. Signs
# (arrows, buttons, flags, symbols) are left out: nobody searches photographs for them.

_SIGNS = re.compile("flag|symbol|arrow|button")
_MIN_NAMED = 0.6  # share of the emoji that a language names

Pairs = tuple[list[str], list[str]]  # texts of a language, and the native translation of each


class NameTranslations(NamedTuple):
    """Names and keywords (`groups`) in a language, and their translations. The language is CLDR's tag, and may be a
    near relative of the one that learns from them; each text has this weight compared with a sentence."""

    language: str
    weight: float
    groups: Sequence[Pairs]


class EmojiNames:
    """All names: language -> emoji -> annotation, or CLDR's file, parsed on use since all take two seconds. `source`
    identifies the unchanged package that they were read from."""

    def __init__(self, files: Mapping[str, Mapping[str, Annotation] | bytes], source: str | None = None) -> None:
        self._files, self.source = dict(files), source
        english = self._named("en").items()
        self.emoji = [each for each, annotation in english if not _SIGNS.search(annotation.name)]

    def _named(self, language: str) -> Mapping[str, Annotation]:
        named = self._files.get(language, {})
        if isinstance(named, bytes):
            named = self._files[language] = annotations_in(named)
        return named

    @cached_property
    def languages(self) -> list[str]:
        return [language for language in self._files if self.names_most(language)]

    def names_most(self, language: str) -> bool:
        named = self._named(language)
        return sum(each in named for each in self.emoji) >= _MIN_NAMED * len(self.emoji)

    def sample(self, language: str, every: int = 3) -> list[str]:
        """Returns some names in a language, of the same emoji in each."""
        named = self._named(language)
        return [named[each].name for each in self.emoji[::every] if each in named]

    def translations(self, language: str, native: str, weight: float) -> NameTranslations:
        """Returns names and keywords in a language with those in the native language."""
        mine, theirs = self._named(language), self._named(native)
        both = [(mine[each], theirs[each]) for each in self.emoji if each in mine and each in theirs]
        described = [pair for pair in both if pair[0].keywords and pair[1].keywords]
        names = [[pair[side].name for pair in both] for side in (0, 1)]
        keywords = [[KEYWORD_SEPARATOR.join(pair[side].keywords) for pair in described] for side in (0, 1)]
        return NameTranslations(language, weight, [(names[0], names[1]), (keywords[0], keywords[1])])


@cache
def load_emoji_names(cache_dir: str | Path | None = None) -> EmojiNames:
    """Reads the names of all languages from CLDR's pinned package, which is fetched once."""
    source = read_sources()["names"]
    tarball = fetch_package(source, Path(cache_dir or DEFAULT_CACHE) / "packages")
    return EmojiNames(annotation_files(tarball), source=source["integrity"])


def profiles_of(names: EmojiNames) -> LanguageProfiles:
    """Returns the n-grams by which languages are recognized; those of CLDR's package are stored on disk."""
    digest = "".join(filter(str.isalnum, names.source or ""))[-12:]
    file = DEFAULT_CACHE / f"profiles-{VERSION}-{digest}.npz"
    if digest and file.is_file():
        with np.load(file) as kept:
            return LanguageProfiles.of(kept["tags"].tolist(), kept["counts"])
    counts = np.stack([counts_of(names.sample(tag)) for tag in names.languages])
    if digest:
        with atomic_file(file) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(stream, tags=np.array(names.languages), counts=counts.astype(np.float16))
    return LanguageProfiles.of(names.languages, counts)
