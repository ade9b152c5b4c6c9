"""Columns under other names than those of a corpus, as people have them.

    image, caption        names that the caller gives (`ColumnNames`)
    text_pl, en, de       a column for each language, named by its tag, alone or after `text_` or `caption_`
    jpg, txt, json        WebDataset's, as `datasets` reads them; `__key__` is then the image_id
    english, non_english  the parallel sentences of sentence-transformers, and their pairs `anchor` and `positive`

The result has the columns `image` and `captions`, which `corpus` checks. Nothing is guessed: a language stands in a
name, in a column, or is given.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from datasets import Dataset, Features, Image, IterableDataset, List, Value, concatenate_datasets

from ...configuration.errors import CorpusError, LanguageTagError, did_you_mean
from ...configuration.languages import normalize_language
from .text_files import parse_object

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)

CAPTION_COLUMNS = ("captions", "caption", "text")
_IMAGES = ("image", "jpg", "jpeg", "png", "webp")
_TAGGED = re.compile(r"(?:text|caption|captions)[_.-](.+)|(.+)", re.IGNORECASE)
# Names of other things that are tags of languages, too: `id` is Indonesian, `no` Norwegian.
_NO_LANGUAGES = frozenset(["id", "no", "index", "key", "url"])
_PARALLEL = (("english", "non_english"), ("anchor", "positive"))


@dataclass(frozen=True)
class ColumnNames:
    """What the columns of a source are called.

    Args:
        image: the column of images.
        caption: the column of captions; or, by their languages, several: `{"pl": "text_pl", "uk": "text_uk"}`.
        language: the column with the language of each row's captions.
    """

    image: str | None = None
    caption: str | Mapping[str, str] | None = None
    language: str | None = None

    def check(self, names: Sequence[str]) -> None:
        """Checks that all columns are there.

        Raises:
            CorpusError: for one that is not, and for a column of languages beside captions whose languages are given.
        """
        by_language = isinstance(self.caption, Mapping)
        if self.language is not None and by_language:
            raise CorpusError(
                f"language_column={self.language!r}: caption_column names the language of each column already"
            )
        given: dict[str, Any] = {"image_column": self.image, "language_column": self.language}
        captions = self.caption.values() if isinstance(self.caption, Mapping) else [self.caption]
        for option, name in [*given.items(), *(("caption_column", each) for each in captions)]:
            if name is not None and name not in names:
                raise CorpusError(
                    f"{option}: there is no column {name!r}{did_you_mean(name, names)}; the columns are "
                    f"{', '.join(names)}"
                )


NO_NAMES = ColumnNames()


def in_corpus_columns(dataset: AnyDataset, columns: ColumnNames = NO_NAMES) -> AnyDataset:
    """Gives a dataset the columns `image` and `captions` (or one of `CAPTION_COLUMNS`).

    Args:
        dataset: the dataset; its columns are known.
        columns: what they are called, where they are called otherwise.

    Raises:
        CorpusError: as `ColumnNames.check`, and for two columns of one language.
        LanguageTagError: for a language of `caption_column` that is unknown.
    """
    names = list(dataset.column_names or ())
    columns.check(names)
    image = columns.image or next((name for name in _IMAGES if name in names), None) or _only_image(dataset.features)
    if image is not None and image != "image":
        dataset = dataset.remove_columns("image") if "image" in names else dataset
        dataset = dataset.rename_column(image, "image")
    names = list(dataset.column_names or ())
    if "__key__" in names and "image_id" not in names:
        dataset = dataset.rename_column("__key__", "image_id")
    caption = columns.caption
    if caption is None and not set(CAPTION_COLUMNS) & set(names):
        caption = _webdataset(names) or columns_of_languages(dataset.features)
    if isinstance(caption, Mapping):
        return gathered(dataset, caption, "captions")
    if caption is None:
        caption = next((name for name in CAPTION_COLUMNS if name in names), None)
    if caption is None:
        return dataset  # whose columns are named in an error
    if columns.language is None and caption in CAPTION_COLUMNS and columns.caption is None:
        return dataset
    is_json = caption == "json" and columns.caption is None
    return _with_captions(dataset, caption, columns.language, is_json=is_json)


def in_translation_columns(
    dataset: AnyDataset, columns: Mapping[str, str] | None, languages: Sequence[str] | None, name: str | None
) -> AnyDataset:
    """Gives a dataset of translations the column `translation`, if its columns are named by the caller, or as
    sentence-transformers names those of parallel sentences.

    Args:
        dataset: the dataset.
        columns: language -> column.
        languages: the languages of parallel columns, in their order, where the names do not tell them.
        name: the configuration of the data set, which may tell them too, such as `en-de`.

    Raises:
        CorpusError: for a column that is not there, and for parallel columns of unknown languages.
    """
    there: list[str] = list(dataset.column_names or ())
    chosen: dict[str, str] = dict(columns or {})
    if not chosen and {"captions", "translation"} & set(there):
        return dataset
    for parallel in _PARALLEL if not chosen else ():
        if parallel[0] in there and parallel[1] in there:
            chosen = dict(zip(_parallel_languages(parallel, languages, name), parallel, strict=True))
    if not chosen and len(found := columns_of_languages(dataset.features, prefixed=True)) > 1:
        chosen = found
    if not chosen:
        return dataset
    ColumnNames(caption=chosen).check(there)
    kept = [*chosen.values(), *(each for each in ("image_id", "split") if each in there)]
    return gathered(dataset.select_columns(kept), chosen, "translation")


def columns_of_languages(features: Features | None, *, prefixed: bool = False) -> dict[str, str]:
    """Language -> column, of the columns of texts that are named by languages.

    Args:
        features: those of a dataset.
        prefixed: only columns such as `text_pl`, and none such as `pl`.
    """
    found: dict[str, str] = {}
    for name, feature in (features or {}).items():
        if tag := tag_in(name, prefixed=prefixed) if _holds_texts(feature) else None:
            if tag in found:
                raise CorpusError(f"the columns {found[tag]!r} and {name!r} are both {tag!r}")
            found[tag] = name
    return found


def tag_in(name: str, *, prefixed: bool = False) -> str | None:
    """The language in the name of a column, `pl` of `pl` and `text_pl`; None where there is none."""
    match = _TAGGED.fullmatch(name)
    tag = match and (match[1] or (None if prefixed else match[2]))
    if not tag or (name.lower() in _NO_LANGUAGES):
        return None
    try:
        return normalize_language(tag)
    except LanguageTagError:
        return None


def gathered(dataset: AnyDataset, columns: Mapping[str, str], into: str) -> AnyDataset:
    """The columns of several languages as one, `{language: text or texts}`; empty texts are left out."""
    tags: dict[str, str] = {normalize_language(tag): name for tag, name in columns.items()}
    if len(tags) < len(columns):
        raise CorpusError(f"caption_column names a language twice: {', '.join(columns)}")
    feature = {tag: dataset.features[name] for tag, name in tags.items()}
    return _mapped(dataset, partial(_gathered, columns=tags, into=into), [*tags.values()], into, feature)


def _mapped(
    dataset: AnyDataset, function: Callable[..., dict[str, Any]], read: Sequence[str], into: str, feature: Any
) -> AnyDataset:
    """A dataset with a new column in the place of those that its function reads, and of a former one of its name."""
    gone = list(dict.fromkeys([*read, *([into] if into in (dataset.column_names or ()) else [])]))
    if isinstance(dataset, Dataset):
        texts = dataset.select_columns(gone)
        made = texts.map(
            function,
            remove_columns=gone,
            features=Features({into: feature}),
            keep_in_memory=True,
            load_from_cache_file=False,
        )
        others = dataset.remove_columns(gone)
        return concatenate_datasets([others, made], axis=1) if others.column_names else made
    if isinstance(dataset.features.get("image"), Image):
        dataset = dataset.cast_column("image", Image(decode=False))
    features = {name: own for name, own in dataset.features.items() if name not in gone} | {into: feature}
    if "image" in features:
        features["image"] = Image(decode=False)
    return dataset.map(partial(_with_image, function), remove_columns=gone, features=Features(features))


def _with_image(function: Callable[..., dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """The new column of a row, and its image as a cell, where it is a path."""
    image = row.get("image")
    return function(row) | ({"image": {"bytes": None, "path": image}} if isinstance(image, str) else {})


def _gathered(row: dict[str, Any], columns: Mapping[str, str], into: str) -> dict[str, Any]:
    texts = {tag: row[name] for tag, name in columns.items()}
    return {into: {tag: None if _is_empty(text) else text for tag, text in texts.items()}}


def _is_empty(text: Any) -> bool:
    return text in (None, []) or (isinstance(text, str) and not text.strip())


def _with_captions(dataset: AnyDataset, caption: str, language: str | None, *, is_json: bool) -> AnyDataset:
    """The captions of a column, with the language of another, as `captions`."""
    if language is None and not is_json:
        others = [name for name in CAPTION_COLUMNS if name in (dataset.column_names or ()) and name != caption]
        dataset = dataset.remove_columns(others) if others else dataset
        return dataset if caption in CAPTION_COLUMNS else dataset.rename_column(caption, "captions")
    feature = List({"language": Value("string"), "text": Value("string")})
    add = partial(_row_captions, caption=caption, language=language, is_json=is_json)
    return _mapped(dataset, add, [name for name in (caption, language) if name is not None], "captions", feature)


def _row_captions(row: dict[str, Any], caption: str, language: str | None, *, is_json: bool) -> dict[str, Any]:
    value = row[caption]
    if is_json:
        record = parse_object(value) if isinstance(value, str) else value or {}
        value = record.get("captions", record.get("caption"))
    tag = None if language is None else row[language]
    if isinstance(value, dict):
        pairs = [
            (own, text) for own, texts in value.items() for text in (texts if isinstance(texts, list) else [texts])
        ]
        return {"captions": [{"language": own, "text": text} for own, text in pairs if text is not None]}
    texts = value if isinstance(value, list) else [value]
    rows = [text if isinstance(text, dict) else {"language": tag, "text": text} for text in texts]
    return {"captions": [each for each in rows if each["text"] is not None]}


def _webdataset(names: Sequence[str]) -> str | None:
    return next((name for name in ("json", "txt") if name in names), None)


def _only_image(features: Features | None) -> str | None:
    """The only column of images."""
    found = [name for name, feature in (features or {}).items() if isinstance(feature, Image)]
    return found[0] if len(found) == 1 else None


def _holds_texts(feature: Any) -> bool:
    inner = feature.feature if isinstance(feature, List) else feature
    return isinstance(inner, Value) and inner.dtype in ("string", "large_string")


def _parallel_languages(
    columns: tuple[str, str], languages: Sequence[str] | None, name: str | None
) -> tuple[str, str]:
    """The languages of two parallel columns."""
    stated = list(languages or ())
    if not stated and name and (tags := [tag_in(part) for part in name.split("-")]) and None not in tags:
        stated = [tag for tag in tags if tag is not None]
    if columns[0] == "english" and "en" in stated:
        stated = ["en", *(tag for tag in stated if tag != "en")]
    if len(stated) != 2:
        raise CorpusError(
            f"the columns {columns[0]!r} and {columns[1]!r} do not tell their languages: name them in this order, as "
            "in languages=['en', 'de']"
        )
    return stated[0], stated[1]
