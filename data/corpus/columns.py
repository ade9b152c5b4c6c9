"""Finds the columns of images, captions and translations: one rule for files, parquet, the Hub and memory.

    image, caption       names that the caller gives (`ColumnNames`), which always win
    text_pl, caption_pl  texts in Polish
    pl                   texts in Polish, if the cells confirm it
    jpg, txt, json       WebDataset's, as `datasets` reads them; `__key__` is then the image_id

Some names are tags by chance: `cat` is Catalan, `id` Indonesian. So the cells decide, by their form, script and most
frequent words. A name with `text_` or `caption_`, a requested language, or a tag with a script (`cat_Latn`) needs only
the form. A tag of two letters is believed unless the cells contradict it; one of three letters, or one that tables use
for other things, needs sentences. The log lists other columns.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from datasets import Dataset, Image, IterableDataset, List, Value

from ...utils.errors import CorpusError, LanguageTagError, did_you_mean
from ...utils.language_matching import counts_as
from ...utils.languages import language_and_script, normalize_language
from .corpus import PLACE, AnyDataset, CaptionRules, enumeration, evenly_spaced, listed
from .files import parse_json

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
        """Returns the captions of a row for `normalize_row`."""
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
    else. An `asked` language is believed unless the cells are not texts, or are clearly in another language; `lenient`
    believes every name, and numbers next to texts."""
    tag, is_stated = tag_in(name)
    given = [cell for cell in cells if not _is_empty(cell)][:SAMPLE]
    texts = tuple(cell for cell in given if isinstance(cell, str))
    are_texts = letters_in(texts) > 0 if lenient else 2 * sum(map(is_text, texts)) >= len(given)
    if tag is None or not texts or not are_texts or resembles_another(tag, texts):
        return None
    written = re.split("[-_]", _TAGGED.fullmatch(name)[1 if is_stated else 0].lower())  # type: ignore[index]
    fits = fits_script(tag, texts)
    is_doubtful = written[0] in _OTHER_THINGS or (
        len(written[0]) == 3 and not any(len(part) == 4 for part in written[1:])
    )
    if fits is False and (is_doubtful or letters_in(texts) >= _LETTERS_OF_A_SCRIPT):
        return None
    if is_stated or tag in asked or lenient:
        return tag
    if is_doubtful and written[0] in _ALWAYS_OTHER_THINGS:
        return None
    if not is_doubtful or (fits and "Latn" not in scripts_of(tag)):
        return tag
    is_other = fits is None and most_frequent_words(texts) is not None
    return tag if are_sentences(texts) and not is_other else None


def text_columns(
    dataset: Dataset | IterableDataset,
    *,
    asked: Sequence[str] | None = None,
    at_least: int = 1,
    only_asked: bool = False,
) -> dict[str, str]:
    """Returns language -> column for the columns that hold texts in the language of their name. If the cells confirm
    fewer than `at_least` languages, names are believed unless the cells contradict them; for translations, even a
    column without any cell is believed. With `only_asked`, other columns are left out, because hundreds take seconds
    to examine, unless an `asked` language has no column with texts."""
    texts = [name for name, each in dataset.features.items() if name not in _NOT_TEXTS and _holds_texts(each)]
    tags = {name: tag for name in texts if (tag := tag_in(name)[0]) is not None}
    columns = dataset.select_columns(list(tags))
    if isinstance(columns, Dataset):
        rows = columns.with_format(None).select(evenly_spaced(len(columns), SAMPLE)).to_list()
    else:
        rows = list(columns.take(SAMPLE))
    samples = {name: [text for row in rows for text in listed(row[name])] for name in tags}
    found: dict[str, str] = {}
    wanted = {name: tag for name, tag in tags.items() if asked and counts_as(tag, asked) is not None}
    tries = [(tags, False, at_least)] + [(tags, True, at_least)] * (at_least > 1)
    if only_asked and asked and {counts_as(tag, asked) for tag in wanted.values()} == {*asked}:
        tries.insert(0, (wanted, False, len(wanted)))
    for tags, lenient, enough in tries:
        for name, tag in tags.items():
            is_asked = name in wanted
            read = language_of_column(name, samples[name], asked=[tag] if is_asked else (), lenient=lenient)
            if at_least > 1 and not any(samples[name]) and (is_asked or lenient):
                read = tag
            if read is not None and found.setdefault(read, name) != name:
                raise CorpusError(f"the columns {found[read]!r} and {name!r} are both {read!r}")
        if not lenient:
            found = _without_categories(found, samples, asked or ())
        if len(found) >= enough:
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


def _without_categories(
    found: dict[str, str], samples: Mapping[str, Sequence[Any]], asked: Sequence[str]
) -> dict[str, str]:
    """Leaves out columns whose cells repeat much more than those of another: brands in `br`, tags in `lg`."""
    cells = {name: [each for each in samples[name] if not _is_empty(each)] for name in found.values()}
    varied = {name: len(set(each)) / len(each) for name, each in cells.items() if each}
    most = max(varied.values(), default=0.0)
    return {
        tag: name
        for tag, name in found.items()
        if tag_in(name)[1] or counts_as(tag, asked) or 2 * varied.get(name, 1) >= most
    }


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


def find_captions(dataset: Dataset | IterableDataset, named: ColumnNames, rules: CaptionRules) -> ColumnNames:
    """Finds the columns of captions; or of translations, if a row has at least two texts."""
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
        usual_here = []  # one language of a dictionary, next to a column such as `word`
    if len(usual_here) == 1 or usual_here[:1] == ["captions"]:
        return replace(named, caption=usual_here[0])
    if rules.at_least > 1:
        by_column = text_columns(dataset, asked=rules.languages, at_least=2, only_asked=rules.skip_incomplete)
        others = [name for name in names if name not in (*by_column.values(), *_NOT_TEXTS)]
        if len(by_column) < 2:
            shown = enumeration(list(map(repr, others or names)), between=", ")
            raise CorpusError(
                f"translations need texts in two languages, and by their names and cells {shown} hold no second one: "
                "name columns by language tags, such as en and de, correct the header if they are swapped, or name "
                "the columns, as in caption_column={'en': 'source', 'de': 'target'}"
            )
        return replace(named, caption=by_column)
    members = [name for name in ("json", "txt") if name in names]  # WebDataset's
    found = () if usual_here else members or text_columns(dataset, asked=rules.languages)
    if not found:
        wanted = ", ".join(map(repr, usual))
        raise CorpusError(
            f"captions are expected in one column {wanted}, or in columns such as text_de and text_uk; the columns "
            f"are {enumeration(names, between=', ')}"
        )
    return replace(named, caption=found)


# ---- Cells ----


def column_names(dataset: Dataset | IterableDataset) -> list[str]:
    if dataset.column_names is None:
        raise CorpusError("the columns of the stream are not known; give it features: dataset.cast(Features(…))")
    return [name for name in dataset.column_names if name != PLACE]


def _is_empty(text: Any) -> bool:
    return text in (None, []) or (isinstance(text, str) and not text.strip())


def _holds_texts(feature: Any) -> bool:
    inner = feature.feature if isinstance(feature, List) else feature
    return isinstance(inner, Value) and inner.dtype in ("string", "large_string")


# ---- The language of texts ----
# It is recognized by CLDR's scripts; by character n-grams of CLDR's names of emoji if the caller has them
# (`LanguageProfiles`), and otherwise by the most frequent words of ten languages.

SAMPLE = 300  # number of cells that are examined

_FLAGS = {
    *("yes", "no", "true", "false", "y", "n", "x", "na", "n/a", "none", "null", "nan", "ok", "-", "?"),
    *("ja", "nein", "oui", "non", "si", "da", "так", "ні", "нет"),
}
_ADDRESS = re.compile(r"\w+://\S+|www\.\S+|\S+@\S+|\S*[/\\]\S*\.\w{2,5}|\S+\.(?:jpe?g|png|gif|webp|txt|html?|pdf)")
_LETTER = regex.compile(r"\p{L}")
_WORD = regex.compile(r"\p{L}+")
_WITHOUT_SPACES = regex.compile(
    r"[\p{Script=Hani}\p{Script=Hira}\p{Script=Kana}\p{Script=Thai}\p{Script=Laoo}\p{Script=Khmr}\p{Script=Mymr}"
    r"\p{Script=Tibt}]"
)
_JOINT = {
    **dict.fromkeys(("Hans", "Hant", "Hanb"), ("Hani", "Bopo")),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}

_WITHOUT_RELATIVES, _NEAR_ENGLISH = ("en", "de", "fr"), ("pcm", "sco", "jam", "tpi")
_WORDS_OF_A_SENTENCE, _LETTERS_OF_A_SENTENCE = 2.5, 6
_FEWEST_PAIRS = 5  # minimum for equal pairs to be meaningful
_FEWEST_LETTERS = 20  # minimum for n-grams to be meaningful
# Similarity to the profile of the tag, relative to the most similar profile.
_CONTRADICTS, _CLEAR = 0.5, 0.25
_FREQUENT, _RARE = 0.12, 0.4  # share of frequent words of a language; the tag's share relative to it

# Frequent words that few other languages have. In a thousand captions they are 15 to 30 % in the language itself, less
# than 7 % in the 190 others; but 12 to 14 % in close relatives (Asturian, Afrikaans, Silesian, Bulgarian).
FREQUENT_WORDS = {
    "en": "the of and with on is are to from for at by an this that",
    "de": "der die das und mit auf ein eine einen einem ist nicht von für im den dem",
    "fr": "le les des et dans avec une est du pour qui au",
    "es": "el los las una con y que en del para por",
    "it": "il gli una con di che è della per sono nel un",
    "pt": "o os uma com e que em do da para um",
    "nl": "het een van en met op de zijn voor aan",
    "pl": "i w na z do się jest nie że przez",
    "ru": "и в на с не что по это из для",
    "uk": "і в у на з не що до та це для",
}

_BUCKETS = 2**16  # of hashed n-grams
_CHARACTERS = 512  # of a text that are counted
_SIZES, _FACTOR = (2, 3, 4), 1_000_003

Array = npt.NDArray[np.float32]


class LanguageProfiles:
    """Character n-grams of languages, from `counts_of` texts in each [languages, buckets]: the weight of each n-gram
    [buckets], and weighted counts [languages, buckets] of unit length. For captions in 200 languages, 20 of a thousand
    are enough to find a language that has a profile."""

    def __init__(self, tags: list[str], counts: Array) -> None:
        self.tags = tags
        self.importance = np.log(len(self.tags) / np.maximum((counts > 0).sum(0), 1)).astype(np.float32)
        self.profiles = _unit(counts * self.importance)
        self.likeness = lru_cache(1024)(self._likeness)  # first to check a column, then to choose its names

    def _likeness(self, texts: tuple[str, ...]) -> Mapping[str, float]:
        """Returns the cosine of texts with each language: 0.5 to 0.8 with their language for 300 sentences."""
        cosines = self.profiles @ _unit(counts_of(texts) * self.importance)
        return dict(zip(self.tags, cosines.tolist(), strict=True))


def counts_of(texts: tuple[str, ...]) -> Array:
    """Returns damped counts of hashed n-grams in texts [buckets]; n-grams have spaces at their ends only."""
    words = (word for text in texts for word in unicodedata.normalize("NFKC", text[:_CHARACTERS]).lower().split())
    codes = " ".join(["", *words, ""]).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(codes, "<u4").astype(np.uint64)
    counts = np.zeros(_BUCKETS, np.int64)
    for size in _SIZES:
        if size <= len(characters):
            windows = np.lib.stride_tricks.sliding_window_view(characters, size)
            windows = windows[(windows[:, 1:-1] != ord(" ")).all(1)]
            hashed = np.full(len(windows), size, np.uint64)
            for offset in range(size):
                hashed = (hashed * np.uint64(_FACTOR) + windows[:, offset]) % np.uint64(2**31 - 1)
            counts += np.bincount((hashed % np.uint64(_BUCKETS)).astype(np.int64), minlength=_BUCKETS)
    return np.log1p(counts).astype(np.float32)


def _unit(vectors: Array) -> Array:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))


def letters_in(texts: Sequence[str]) -> int:
    whole = "".join(texts)
    return sum(whole.count(each) for each in {*whole} if each.isalpha())


def is_text(cell: Any) -> bool:
    """Returns whether a cell is a word or a text, not a number, a code, a flag, a file name or an address."""
    if not isinstance(cell, str) or (text := cell.strip()).lower() in _FLAGS or _ADDRESS.fullmatch(text):
        return False
    # Indic scripts write vowels as marks.
    if 2 * letters_in([text]) < len("".join(text.split())) and not regex.search(r"\p{L}\p{M}", text):
        return False
    return any(_LETTER.search(word) and not any(map(str.isdigit, word)) for word in text.split())


@lru_cache(8)  # the native column is compared with every other one
def fits_script(tag: str, texts: tuple[str, ...]) -> bool | None:
    """Returns whether the letters of texts are in a script of a language: most of them for Latin, a tenth for any
    other, because brand names are Latin; None if CLDR knows no script."""
    if not (scripts := scripts_of(tag)):
        return None
    found = Counter("".join(texts))
    letters = regex.compile("".join(["[", *(rf"\p{{scx={script}}}" for script in scripts), "]"]))
    fitting = sum(count for each, count in found.items() if each.isalpha() and letters.match(each))
    return fitting >= (0.5 if "Latn" in scripts else 0.1) * letters_in(texts)


@cache
def scripts_of(tag: str) -> tuple[str, ...]:
    """Returns the scripts of a language, as Unicode names them: the one in its tag, or all that CLDR knows."""
    from langcodes import Language
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    primary = tag.partition("-")[0]
    names = {primary, MACROLANGUAGES.get(primary, primary)}
    likely = (each.split("-") for each in LIKELY_SUBTAGS.values())
    known = {Language.get(tag).script or ""} - {""} or {script for name, script, *_ in likely if name in names}
    scripts = {each for script in known for each in _JOINT.get(script, (script,))}
    return tuple(sorted(filter(_is_unicode_script, scripts)))


def _is_unicode_script(script: str) -> bool:
    try:
        return bool(regex.compile(rf"\p{{scx={script}}}"))
    except regex.error:
        return False


@lru_cache(8)
def shares_of_frequent_words(texts: tuple[str, ...]) -> Mapping[str, float]:
    """Returns language -> share of words that are among its most frequent. Each word counts at most a thirtieth: a
    single one may also be a word of another language."""
    words = Counter(_WORD.findall(" ".join(texts).lower()))
    total = max(1, words.total())
    return {
        language: sum(min(words[word], words.total() / 30) for word in frequent.split()) / total
        for language, frequent in FREQUENT_WORDS.items()
    }


def most_frequent_words(texts: tuple[str, ...]) -> str | None:
    share, nearest = max((share, language) for language, share in shares_of_frequent_words(texts).items())
    return nearest if share >= _FREQUENT else None


def resembles_another(tag: str, texts: tuple[str, ...], profiles: LanguageProfiles | None = None) -> str | None:
    """Returns another language that texts clearly resemble, by `profiles`, or else by frequent words."""
    if (found := _likeness(tag, texts, profiles)) is not None:
        own, most, nearest = found
        return nearest if own < _CONTRADICTS * most and most >= _CLEAR else None
    primary, other = language_and_script(tag)[0], most_frequent_words(texts)
    if other is None or primary in (other, *_NEAR_ENGLISH):
        return None
    if primary in FREQUENT_WORDS:
        shares = shares_of_frequent_words(texts)
        return other if shares[primary] < _RARE * shares[other] else None
    return other if other in _WITHOUT_RELATIVES else None


def _likeness(tag: str, texts: tuple[str, ...], profiles: LanguageProfiles | None) -> tuple[float, float, str] | None:
    """Returns the cosine of texts with the profiles of a language, in any script or of its macrolanguage, and the
    greatest cosine and its language; None without such a profile, or for too few letters."""
    if profiles is None or letters_in(texts) < _FEWEST_LETTERS:
        return None
    primary, cosines = language_and_script(tag)[0], profiles.likeness(texts)
    own = [cosine for each, cosine in cosines.items() if each == tag or language_and_script(each)[0] == primary]
    return (max(own), *max((cosine, each) for each, cosine in cosines.items())) if own else None


def _similarity(tag: str, texts: tuple[str, ...], profiles: LanguageProfiles | None) -> float:
    """Returns how similar texts are to a language; at 1, they are clearly in it."""
    if (found := _likeness(tag, texts, profiles)) is not None:
        return found[0] / _CLEAR
    return shares_of_frequent_words(texts).get(tag, 0.0) / _FREQUENT


def sample_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns up to 300 texts at equal distances."""
    return tuple(texts[row] for row in evenly_spaced(len(texts), SAMPLE))


def are_sentences(texts: Sequence[str]) -> bool:
    """Returns whether cells have several words on average, and few of them repeat."""
    if 2 * len(set(texts)) < len(texts):
        return False
    letters = letters_in(texts)
    if 2 * sum(len(_WITHOUT_SPACES.findall(text)) for text in texts) > letters:
        return letters >= _LETTERS_OF_A_SENTENCE * len(texts)
    return sum(len(text.split()) for text in texts) >= _WORDS_OF_A_SENTENCE * len(texts)


def check_columns(
    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    native: str,
    source: str,
    profiles: LanguageProfiles | None = None,
) -> None:
    """Checks that texts (by language) and their translations into the native language are in these languages."""
    for language, (texts, natives) in pairs.items():
        some, others = sample_of(texts), sample_of(natives)
        columns = f"{source}: the columns {native!r} and {language!r}"
        same = sum(a.strip().casefold() == b.strip().casefold() for a, b in zip(texts, natives, strict=True))
        if 2 * same > len(texts) >= _FEWEST_PAIRS:
            raise CorpusError(
                f"{columns} hold the same texts in {same:,} of {len(texts):,} rows: name the right columns"
            )
        crossed = _is_foreign(native, others) and not _is_foreign(native, some) and not _is_foreign(language, others)
        likeness, other = (_similarity(native, each, profiles) for each in (some, others))
        if crossed or (likeness >= 1 and likeness > other):
            raise CorpusError(
                f"{columns} seem to be swapped, or {language!r} is also in {native}: {language!r} has {_shown(some)}, "
                f"and {native!r} has {_shown(others)}. Correct the header, or name the columns"
            )
        for tag, column in ((native, others), (language, some)):
            if _is_foreign(tag, column):
                raise CorpusError(
                    f"{source}: the column {tag!r} has {_shown(column)}, which is not in the script of {tag}: correct "
                    f"the header, or add the script to the tag, such as {tag.partition('-')[0]}-Latn"
                )
            if nearest := resembles_another(tag, column, profiles):
                raise CorpusError(
                    f"{source}: the column {tag!r} looks like {nearest} and not like {tag}, such as {_shown(column)}: "
                    "correct the header, or name the columns"
                )


def _is_foreign(tag: str, texts: tuple[str, ...]) -> bool:
    return letters_in(texts) >= _FEWEST_LETTERS and fits_script(tag, texts) is False


def _shown(texts: Sequence[str]) -> str:
    return f"{next((text for text in texts if text.strip()), '')[:40]!r}"
