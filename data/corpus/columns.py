"""Finds the columns of images, captions and translations: one rule for files, parquet, the Hub and memory.

    image, caption        names that the caller gives (`ColumnNames`), which always win
    text_pl, caption_pl   texts in Polish
    pl                    texts in Polish, if the cells confirm it
    jpg, txt, json        WebDataset's, as `datasets` reads them; `__key__` is then the image_id
    english, non_english  the parallel sentences of sentence-transformers, and their pairs `anchor` and `positive`

Some names are tags by chance: `cat` is Catalan, `id` Indonesian. So the cells decide, by their form, script and most
frequent words. A name with `text_` or `caption_`, a requested language, or a tag with a script (`cat_Latn`) needs only
the form. A tag of two letters is believed unless the cells contradict it; one of three letters, or one that tables use
for other things, needs sentences. The log lists other columns.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from datasets import Dataset, Image, IterableDataset, List, Value

from ...utils.errors import CorpusError, LanguageTagError, did_you_mean
from ...utils.languages import counts_as, normalize_language
from .captions import enumeration, listed
from .text_files import parse_object
from .text_languages import (
    SAMPLE,
    are_sentences,
    fits_script,
    is_text,
    letters_in,
    most_frequent_words,
    resembles_another,
    scripts_of,
)

logger = logging.getLogger(__name__)

AnyDataset = TypeVar("AnyDataset", Dataset, IterableDataset)
Cells = Callable[[str], Sequence[Any]]  # name of a column -> some of its cells

CAPTION_COLUMNS = ("captions", "caption", "text")
_IMAGES = ("image", "jpg", "jpeg", "png", "webp")
_NOT_TEXTS = ("image_id", "split")

_TAGGED = re.compile(r"(?:text|caption|captions)[_.-](.+)|(.+)", re.IGNORECASE)
# Names of other things that are tags of two or three letters.
_OTHER_THINGS = {"id", "no", "is", "to", "so", "an", "co", "in", "la", "na", "se", "st"}
_ALWAYS_OTHER_THINGS = {
    *("alt", "art", "cap", "cat", "des", "img", "index", "key", "lat", "mar", "may", "min", "mon", "nom", "pos"),
    *("ref", "sat", "sku", "src", "sub", "sun", "tag", "txt", "typ", "url"),
}
_LETTERS_OF_A_SCRIPT = 8  # minimum for a script to contradict a tag of two letters


@dataclass(frozen=True)
class ColumnNames:
    """The columns of images, of captions (several by language: `{"pl": "text_pl"}`), and of each row's language."""

    image: str | None = None
    caption: str | Mapping[str, str] | None = None
    language: str | None = None

    def check(self, names: Sequence[str]) -> None:
        captions = [*self.caption.values()] if isinstance(self.caption, Mapping) else [self.caption]
        if self.language is not None and isinstance(self.caption, Mapping):
            raise CorpusError("language_column: caption_column already names the language of each column")
        given = [("image_column", self.image), ("language_column", self.language)]
        for option, name in [*given, *(("caption_column", each) for each in captions)]:
            if name is not None and name not in names:
                near = did_you_mean(name, names)
                raise CorpusError(f"{option}: there is no column {name!r}{near}; the columns are {', '.join(names)}")


DEFAULT_COLUMNS = ColumnNames()


# ---- The language of a column ----


@cache
def tag_in(name: str) -> tuple[str | None, bool]:
    """Returns the language in a column's name (`pl` in `text_pl`) or None; and whether `text_` or `caption_` states
    it."""
    match = _TAGGED.fullmatch(name)
    try:
        return (normalize_language(match[1] or match[2]), bool(match[1])) if match else (None, False)
    except LanguageTagError:
        return None, False


def language_of_column(
    name: str, cells: Sequence[Any], *, asked: Collection[str] = (), lenient: bool = False
) -> str | None:
    """Returns the language of the texts in a column, such as `text_pl`, from some of its cells; None for anything
    else. An `asked` language needs only the form; `lenient` believes the name unless no cell has letters, or they are
    in another script."""
    tag, is_stated = tag_in(name)
    given = [cell for cell in cells if not _is_empty(cell)][:SAMPLE]
    texts = [cell for cell in given if isinstance(cell, str)]
    are_texts = letters_in(texts) > 0 if lenient else 2 * sum(map(is_text, texts)) >= len(given)
    if tag is None or not texts or not are_texts:
        return None
    written = re.split("[-_]", _TAGGED.fullmatch(name)[1 if is_stated else 0].lower())  # type: ignore[index]
    fits = fits_script(tag, texts)
    is_long = len(written[0]) == 3 and not any(len(part) == 4 for part in written[1:])
    is_doubtful = is_long or written[0] in _OTHER_THINGS
    if is_stated or tag in asked:
        # `caption_alt` in Latin letters is not Southern Altai, which is written in Cyrillic.
        return None if is_long and fits is False else tag
    if fits is False and (is_doubtful or letters_in(texts) >= _LETTERS_OF_A_SCRIPT):
        return None
    if lenient:
        return tag
    if resembles_another(tag, texts) or (is_doubtful and written[0] in _ALWAYS_OTHER_THINGS):
        return None
    if not is_doubtful or (fits and "Latn" not in scripts_of(tag)):
        return tag
    is_other = fits is None and most_frequent_words(texts) is not None
    return tag if are_sentences(texts) and not is_other else None


def text_columns(
    names: Sequence[str], cells: Cells, *, asked: Sequence[str] | None = None, at_least: int = 1
) -> dict[str, str]:
    """Returns language -> column for the columns that hold texts in the language of their name. If the cells confirm
    fewer than `at_least` languages, names are believed unless the cells contradict them; for translations, even a
    column without any cell is believed."""
    tags = {name: tag for name in names if name not in _NOT_TEXTS and (tag := tag_in(name)[0]) is not None}
    samples = {name: [text for cell in cells(name) for text in listed(cell)] for name in tags}
    found: dict[str, str] = {}
    for lenient in (False, True) if at_least > 1 else (False,):
        for name, tag in tags.items():
            is_asked = counts_as(tag, asked or ()) is not None
            read = language_of_column(name, samples[name], asked=[tag] if is_asked else (), lenient=lenient)
            if at_least > 1 and not any(samples[name]) and (is_asked or lenient):
                read = tag
            if read is not None and found.setdefault(read, name) != name:
                raise CorpusError(f"the columns {found[read]!r} and {name!r} are both {read!r}")
        if len(found) >= at_least:
            break
    found = {tag: name for name, tag in tags.items() if found.get(tag) == name}  # in the order of the columns
    others = [repr(name) for name in tags if name not in found.values() and any(samples[name])]
    if found and (others or any(not tag_in(name)[1] for name in found.values())):
        read_as = enumeration([f"{name!r} as {tag}" for tag, name in found.items()])
        not_read = f"; not from {', '.join(others)}, by their cells" if others else ""
        logger.log(logging.WARNING if others else logging.INFO, "texts are read from %s%s", read_as, not_read)
    if others and not found and at_least == 1:
        raise CorpusError(
            f"no column holds captions: by their cells, {', '.join(others)} are not texts in the languages of their "
            "names. Name the columns of captions, as in caption_column={'de': 'title'}"
        )
    return found


# ---- Captions ----


class CaptionColumns(NamedTuple):
    """The columns of captions, and a function of a batch that returns each row's for `normalize_captions`."""

    read: list[str]
    of: Callable[[Mapping[str, list[Any]]], list[Any]]


def _by_language(columns: Mapping[str, str], batch: Mapping[str, list[Any]]) -> list[Any]:
    cells = [[None if _is_empty(text) else text for text in batch[name]] for name in columns.values()]
    return [dict(zip(columns, texts, strict=True)) for texts in zip(*cells, strict=True)]


def _in_column(name: str, language: str | None, batch: Mapping[str, list[Any]]) -> list[Any]:
    cells = batch[name]
    if name == "json":  # WebDataset's
        records = (parse_object(cell) if isinstance(cell, str) else cell or {} for cell in cells)
        cells = [record.get("captions", record.get("caption")) for record in records]
    if language is None:
        return cells
    return [
        [text if isinstance(text, dict) else {"language": tag, "text": text} for text in listed(cell)]
        if not isinstance(cell, dict)
        else cell
        for cell, tag in zip(cells, batch[language], strict=True)
    ]


def in_corpus_columns(
    dataset: AnyDataset, columns: ColumnNames = DEFAULT_COLUMNS, languages: Sequence[str] | None = None
) -> tuple[AnyDataset, CaptionColumns]:
    """Gives a dataset with known columns the columns `image` and `image_id`, and finds those of its captions."""
    names = _names(dataset)
    columns.check(names)
    typed = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
    image = columns.image or next((name for name in _IMAGES if name in names), typed[0] if len(typed) == 1 else None)
    if image is not None and image != "image":
        dataset = dataset.remove_columns("image") if "image" in names else dataset
        dataset = dataset.rename_column(image, "image")
    if "__key__" in names and "image_id" not in names:
        dataset = dataset.rename_column("__key__", "image_id")
    found = _find_captions(dataset, columns, languages)
    is_other = "captions" in _names(dataset) and "captions" not in found.read
    return dataset.remove_columns("captions") if is_other else dataset, found


def _find_captions(
    dataset: Dataset | IterableDataset, named: ColumnNames, asked: Sequence[str] | None = None
) -> CaptionColumns:
    names, chosen = _names(dataset), named.caption
    usual = [name for name in CAPTION_COLUMNS if name in names]
    if chosen is None and not usual:
        chosen = next((name for name in ("json", "txt") if name in names), None)
        chosen = chosen or text_columns(names, partial(_cells, dataset), asked=asked)
    if isinstance(chosen, Mapping) and chosen:
        by_language: dict[str, str] = {normalize_language(tag): name for tag, name in chosen.items()}
        if len(by_language) < len(chosen):
            raise CorpusError(f"caption_column names a language twice: {', '.join(chosen)}")
        return CaptionColumns(list(dict.fromkeys(by_language.values())), partial(_by_language, by_language))
    if not isinstance(chosen, str):
        if "captions" not in usual and len(usual) != 1:
            wanted = " or ".join(map(repr, CAPTION_COLUMNS))
            raise CorpusError(f"captions are expected in one column {wanted}; the columns are {', '.join(names)}")
        chosen = usual[0]
    read = [chosen] if named.language is None else [chosen, named.language]
    return CaptionColumns(read, partial(_in_column, chosen, named.language))


# ---- Translations ----


def in_translation_columns(
    dataset: AnyDataset,
    columns: Mapping[str, str] | None = None,
    languages: Sequence[str] | None = None,
    name: str | None = None,
) -> tuple[AnyDataset, CaptionColumns]:
    """Finds the columns of translations, and drops the others but `image_id` and `split`. The languages of parallel
    columns are the requested ones in order, or those in the `name` of the configuration."""
    names = _names(dataset)
    kept: list[str] = [each for each in _NOT_TEXTS if each in names]
    nested = next((each for each in ("captions", "translation") if each in names), None)
    if nested and not columns:
        return dataset.select_columns([nested, *kept]), CaptionColumns([nested], partial(_in_column, nested, None))
    named = ColumnNames(caption=columns or _translation_columns(dataset, languages, name))
    named.check(names)
    source: CaptionColumns = _find_captions(dataset, named)
    return dataset.select_columns([*source.read, *kept]), source


def _translation_columns(
    dataset: Dataset | IterableDataset, languages: Sequence[str] | None, name: str | None
) -> dict[str, str]:
    names = _names(dataset)
    for parallel in (("english", "non_english"), ("anchor", "positive")):
        if set(parallel) <= set(names):
            return dict(zip(_parallel_languages(parallel, languages, name), parallel, strict=True))
    texts = [each for each in names if _holds_texts(dataset.features[each])]
    found = text_columns(texts, partial(_cells, dataset), asked=languages, at_least=2)
    others = [each for each in names if each not in (*found.values(), *_NOT_TEXTS)]
    if len(found) < 2 and (others or not found):  # other incomplete rows are reported later
        raise CorpusError(
            f"translations need texts in two languages, and by their names and cells "
            f"{', '.join(map(repr, others or names))} hold none: name columns by language tags, such as en and de, "
            "correct the header if they are swapped, or name the columns, as in "
            "caption_column={'en': 'source', 'de': 'target'}"
        )
    return found


def _parallel_languages(columns: tuple[str, str], languages: Sequence[str] | None, name: str | None) -> list[str]:
    stated = list(languages or filter(None, (tag_in(part)[0] for part in (name or "").split("-"))))
    if columns[0] == "english" and "en" in stated:
        stated = ["en", *(tag for tag in stated if tag != "en")]
    if len(stated) != 2:
        raise CorpusError(
            f"the names {columns[0]!r} and {columns[1]!r} do not state the languages: name them in this order, as in "
            "languages=['en', 'de']"
        )
    return stated


# ---- Cells ----


def _names(dataset: Dataset | IterableDataset) -> list[str]:
    if dataset.column_names is None:
        raise CorpusError("the columns of the stream are not known; give it features: dataset.cast(Features(…))")
    return dataset.column_names


def _is_empty(text: Any) -> bool:
    return text in (None, []) or (isinstance(text, str) and not text.strip())


def _holds_texts(feature: Any) -> bool:
    inner = feature.feature if isinstance(feature, List) else feature
    return isinstance(inner, Value) and inner.dtype in ("string", "large_string")


def _cells(dataset: Dataset | IterableDataset, name: str) -> list[Any]:
    if not _holds_texts(dataset.features[name]):
        return []
    column = dataset.select_columns(name)
    if isinstance(column, Dataset):
        step = max(1, len(column) // SAMPLE)
        return list(column.with_format(None).select(range(0, len(column), step))[name])
    return [row[name] for row in column.take(SAMPLE)]
