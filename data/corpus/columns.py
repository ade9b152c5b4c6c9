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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from datasets import Dataset, Image, IterableDataset, List, Value

from ...utils.errors import CorpusError, LanguageTagError, did_you_mean
from ...utils.language_matching import counts_as
from ...utils.languages import normalize_language
from .corpus import AnyDataset, CaptionRules, enumeration, evenly_spaced, listed
from .files import parse_json
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
    """The columns of images, of captions (several by language: `{"pl": "text_pl"}`; or the first of several that has
    any), and of each row's language."""

    image: str | None = None
    caption: str | Sequence[str] | Mapping[str, str] | None = None
    language: str | None = None

    @property
    def _captions(self) -> list[str]:
        names = self.caption.values() if isinstance(self.caption, Mapping) else self.caption or ()
        return [names] if isinstance(names, str) else list(dict.fromkeys(names))

    @property
    def read(self) -> list[str]:
        """The columns from which the captions are read."""
        return [*self._captions, *([] if self.language is None else [self.language])]

    def check(self, names: Sequence[str]) -> None:
        if self.language is not None and isinstance(self.caption, Mapping):
            raise CorpusError("language_column: caption_column already names the language of each column")
        given = [("image_column", self.image), ("language_column", self.language)]
        for option, name in [*given, *(("caption_column", each) for each in self._captions)]:
            if name is not None and name not in names:
                near = did_you_mean(name, names)
                raise CorpusError(f"{option}: there is no column {name!r}{near}; the columns are {', '.join(names)}")

    def of(self, batch: Mapping[str, list[Any]], row: int, place: str) -> Any:
        """Returns the captions of a row for `normalize_captions`."""
        cells = {name: batch[name][row] for name in self._captions}
        if isinstance(self.caption, Mapping):
            return {tag: None if _is_empty(cells[name]) else cells[name] for tag, name in self.caption.items()}
        if "json" in cells:  # WebDataset's
            record = cells["json"] or {}
            record = parse_json(record, f"{place}: ", dict) if isinstance(record, str) else record
            cells["json"] = record.get("captions") if record.get("captions") is not None else record.get("caption")
        cell = next((each for each in cells.values() if each is not None), None)
        if self.language is None or isinstance(cell, dict):
            return cell
        tag = batch[self.language][row]
        return [text if isinstance(text, dict) else {"language": tag, "text": text} for text in listed(cell)]


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
    dataset: Dataset | IterableDataset, names: Sequence[str], *, asked: Sequence[str] | None = None, at_least: int = 1
) -> dict[str, str]:
    """Returns language -> column for the columns that hold texts in the language of their name. If the cells confirm
    fewer than `at_least` languages, names are believed unless the cells contradict them; for translations, even a
    column without any cell is believed."""
    tags = {name: tag for name in names if name not in _NOT_TEXTS and (tag := tag_in(name)[0]) is not None}
    samples = {name: [text for cell in _cells(dataset, name) for text in listed(cell)] for name in tags}
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


# ---- The columns of a dataset ----


def in_corpus_columns(
    dataset: AnyDataset, columns: ColumnNames, rules: CaptionRules
) -> tuple[AnyDataset, ColumnNames]:
    """Gives a dataset with known columns the columns `image` and `image_id`, and finds those of its captions."""
    names = column_names(dataset)
    columns.check(names)
    typed = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
    image = columns.image or next((name for name in _IMAGES if name in names), typed[0] if len(typed) == 1 else None)
    if image is not None and image != "image":
        dataset = dataset.remove_columns("image") if "image" in names else dataset
        dataset = dataset.rename_column(image, "image")
    if "__key__" in names and "image_id" not in names:
        dataset = dataset.rename_column("__key__", "image_id")
    found = find_captions(dataset, replace(columns, image=None), rules)
    is_other = "captions" in column_names(dataset) and "captions" not in found.read
    return dataset.remove_columns("captions") if is_other else dataset, found


def find_captions(
    dataset: Dataset | IterableDataset, named: ColumnNames, rules: CaptionRules, configuration: str | None = None
) -> ColumnNames:
    """Finds the columns of captions; or of translations, if a row has at least two texts. The languages of parallel
    columns are the requested ones in order, or those in the name of the `configuration`."""
    names, chosen = column_names(dataset), named.caption
    named.check(names)
    if isinstance(chosen, Mapping) and chosen:
        by_language = {normalize_language(tag): name for tag, name in chosen.items()}
        if len(by_language) < len(chosen):
            raise CorpusError(f"caption_column names a language twice: {', '.join(chosen)}")
        return replace(named, caption=by_language)
    if chosen:
        return named
    usual = CAPTION_COLUMNS if rules.at_least < 2 else ("captions", "translation")
    usual_here = [name for name in usual if name in names]
    if usual_here == ["translation"] and _holds_texts(dataset.features["translation"]):
        usual_here = []  # one language of a dictionary, beside a column such as `word`
    if len(usual_here) == 1 or usual_here[:1] == ["captions"]:
        return replace(named, caption=usual_here[0])
    if rules.at_least > 1:
        return replace(named, caption=_translations(dataset, rules, configuration))
    members = [name for name in ("json", "txt") if name in names]  # WebDataset's
    found = () if usual_here else members or text_columns(dataset, names, asked=rules.languages)
    if not found:
        wanted = " or ".join(map(repr, usual))
        raise CorpusError(f"captions are expected in one column {wanted}; the columns are {', '.join(names)}")
    return replace(named, caption=found)


def _translations(
    dataset: Dataset | IterableDataset, rules: CaptionRules, configuration: str | None
) -> dict[str, str]:
    names, asked = column_names(dataset), rules.languages
    for parallel in (("english", "non_english"), ("anchor", "positive")):
        if set(parallel) <= set(names):
            tags = list(asked or filter(None, (tag_in(part)[0] for part in (configuration or "").split("-"))))
            if parallel[0] == "english" and "en" in tags:
                tags = ["en", *(tag for tag in tags if tag != "en")]
            if len(tags) != 2:
                raise CorpusError(
                    f"the names {parallel[0]!r} and {parallel[1]!r} do not state the languages: name them in this "
                    "order, as in languages=['en', 'de']"
                )
            return dict(zip(tags, parallel, strict=True))
    texts = [name for name in names if _holds_texts(dataset.features[name])]
    found = text_columns(dataset, texts, asked=asked, at_least=2)
    others = [name for name in names if name not in (*found.values(), *_NOT_TEXTS)]
    if len(found) < 2 and (others or not found):  # other incomplete rows are reported later
        raise CorpusError(
            f"translations need texts in two languages, and by their names and cells "
            f"{', '.join(map(repr, others or names))} hold none: name columns by language tags, such as en and de, "
            "correct the header if they are swapped, or name the columns, as in "
            "caption_column={'en': 'source', 'de': 'target'}"
        )
    return found


# ---- Cells ----


def column_names(dataset: Dataset | IterableDataset) -> list[str]:
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
        return list(column.with_format(None).select(evenly_spaced(len(column), SAMPLE))[name])
    return [row[name] for row in column.take(SAMPLE)]
