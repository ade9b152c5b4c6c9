"""Which columns of a table hold images, captions and translations: one rule for files, parquet, the Hub and memory.

    image, caption        names that the caller gives (`ColumnNames`), which always win
    text_pl, caption_pl   texts in Polish
    pl                    texts in Polish, if its cells are (`text_languages`)
    jpg, txt, json        WebDataset's, as `datasets` reads them; `__key__` is then the image_id
    english, non_english  the parallel sentences of sentence-transformers, and their pairs `anchor` and `positive`

All other columns stay as they are. The log says which columns were read in which language, and which were not although
their names are tags.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from datasets import Dataset, Features, Image, IterableDataset, List, Value, concatenate_datasets

from ...utils.errors import CorpusError, LanguageTagError, did_you_mean
from ...utils.languages import counts_as, normalize_language
from .text_files import parse_object
from .text_languages import SAMPLE, is_mislabelled, language_of_column, tag_in

logger = logging.getLogger(__name__)

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)

CAPTION_COLUMNS = ("captions", "caption", "text")
_IMAGES = ("image", "jpg", "jpeg", "png", "webp")
_NOT_TEXTS = frozenset({"image_id", "split"})
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


def in_corpus_columns(
    dataset: AnyDataset, columns: ColumnNames = NO_NAMES, languages: Sequence[str] | None = None
) -> AnyDataset:
    """Gives a dataset the columns `image` and `captions` (or one of `CAPTION_COLUMNS`).

    Args:
        dataset: the dataset; its columns are known.
        columns: what they are called, where they are called otherwise.
        languages: the languages that are asked for.

    Raises:
        CorpusError: as `ColumnNames.check`, for two columns of one language, and where columns are named like
            languages and none holds texts.
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
    caption: str | Mapping[str, str] | None = columns.caption
    if caption is None and not set(CAPTION_COLUMNS) & set(names):
        caption = _webdataset(names) or text_columns(_text_names(dataset), partial(_cells, dataset), asked=languages)
    if isinstance(caption, Mapping) and caption:
        return gathered(dataset, caption, "captions")
    if not isinstance(caption, str):
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
    texts = _text_names(dataset)
    chosen: dict[str, str] = dict(columns or {})
    if not chosen and {"captions", "translation"} & set(there):
        return dataset
    if not chosen:
        try:
            chosen = translation_columns(texts, partial(_cells, dataset), languages, name, there)
        except LanguageTagError as error:
            raise CorpusError(f"no two columns hold translations of each other: {error}") from error
    ColumnNames(caption=chosen).check(there)
    kept = [*chosen.values(), *(each for each in ("image_id", "split") if each in there)]
    return gathered(dataset.select_columns(kept), chosen, "translation")


def translation_columns(
    names: Sequence[str],
    cells: Callable[[str], Sequence[Any]],
    languages: Sequence[str] | None,
    name: str | None = None,
    every_name: Sequence[str] | None = None,
) -> dict[str, str]:
    """Language -> column, of the columns that hold translations of each other.

    Args:
        names: of the columns of texts.
        cells: gives some cells of a column.
        languages: those that are asked for; of parallel columns, their languages in order.
        name: as in `in_translation_columns`.
        every_name: of all columns, for the error.

    Raises:
        CorpusError, LanguageTagError: where there are no two languages.
    """
    for parallel in _PARALLEL:
        if parallel[0] in names and parallel[1] in names:
            return dict(zip(_parallel_languages(parallel, languages, name), parallel, strict=True))
    found = text_columns(names, cells, asked=languages, at_least=2)
    if len(found) > 1:
        return found
    others = [each for each in every_name or names if each not in (*found.values(), "image_id", "split")]
    for position, other in enumerate(every_name or names, 1):
        if other in others and tag_in(other)[0] is None:
            try:
                normalize_language(other)
            except LanguageTagError as error:
                raise LanguageTagError(f"column {position} of the header: {error}") from error
    if others or not found:
        named = ", ".join(map(repr, others or names))
        raise CorpusError(
            f"translations need texts in two languages, and by their cells {named} hold none in the languages of "
            "their names: correct the header if they are swapped, or name the columns, as in "
            "caption_column={'en': 'source', 'de': 'target'}"
        )
    return found  # whose rows are incomplete


def text_columns(
    names: Sequence[str],
    cells: Callable[[str], Sequence[Any]],
    *,
    asked: Sequence[str] | None = None,
    at_least: int = 1,
) -> dict[str, str]:
    """Language -> column, of the columns that hold texts in the language of their name.

    Args:
        names: of the columns.
        cells: gives some cells of a column.
        asked: canonical tags of the languages that are asked for.
        at_least: number of languages that there must be. Where there are fewer by what the cells say, names are
            believed unless the cells contradict them; for translations, a column without any cell is believed, too.

    Raises:
        CorpusError: for two columns of one language, and where columns are named like languages and none of them holds
            texts.
    """
    tags = {name: tag for name in names if name not in _NOT_TEXTS and (tag := tag_in(name)[0]) is not None}
    samples = {
        name: [text for cell in cells(name) for text in (cell if isinstance(cell, list) else [cell])] for name in tags
    }
    found: dict[str, str] = {}
    for lenient in (False, True) if at_least > 1 else (False,):
        for name, tag in tags.items():
            is_asked = counts_as(tag, asked or ()) is not None
            read = language_of_column(name, samples[name], asked=[tag] if is_asked else (), lenient=lenient)
            if read is None and at_least > 1 and not any(samples[name]) and (is_asked or lenient):
                read = tag
            if read is None or found.get(read) == name:
                continue
            if read in found:
                raise CorpusError(f"the columns {found[read]!r} and {name!r} are both {read!r}")
            found[read] = name
        if len(found) >= at_least:
            break
    found = {tag: name for name, tag in tags.items() if found.get(tag) == name}  # in the order of the columns
    others = [name for name in tags if name not in found.values() and any(samples[name])]
    if found and (others or any(not tag_in(name)[1] for name in found.values())):
        read_as = ", ".join(f"{name!r} as {tag}" for tag, name in found.items())
        level = logging.WARNING if any(is_mislabelled(name, samples[name]) for name in others) else logging.INFO
        not_read = f"; not from {_quoted(others)}, by their cells" if others else ""
        logger.log(level, "texts are read from %s%s", read_as, not_read)
    if others and not found and at_least == 1:
        raise CorpusError(
            f"no column holds captions: {_quoted(others)} by their cells are no texts in the languages that the names "
            "say. Name the columns of captions, as in caption_column={'de': 'title'}"
        )
    return found


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _text_names(dataset: Dataset | IterableDataset) -> list[str]:
    return [name for name, feature in (dataset.features or {}).items() if _holds_texts(feature)]


def _cells(dataset: Dataset | IterableDataset, name: str) -> list[Any]:
    """Some cells of a column: of a stream the first."""
    column = dataset.select_columns(name)
    if isinstance(column, Dataset):
        step = max(1, len(column) // SAMPLE)
        return list(column.with_format(None).select(range(0, len(column), step))[name])
    return [row[name] for row in column.take(SAMPLE)]


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
    if not stated and name and (tags := [tag_in(part)[0] for part in name.split("-")]) and None not in tags:
        stated = [tag for tag in tags if tag is not None]
    if columns[0] == "english" and "en" in stated:
        stated = ["en", *(tag for tag in stated if tag != "en")]
    if len(stated) != 2:
        raise CorpusError(
            f"the columns {columns[0]!r} and {columns[1]!r} do not tell their languages: name them in this order, as "
            "in languages=['en', 'de']"
        )
    return stated[0], stated[1]
