"""The languages of mteb's tasks: which language the texts have that a model is given for a subset of a task.

mteb states languages by ISO 639-3 with a script (`ukr-Cyrl`), one or several for each subset. A model is told the
language of every text; where the task leaves it open, that is an error, and no language is assumed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import langcodes

from ..configuration.errors import LanguageTagError, MissingLanguageError, UnknownLanguageError
from ..configuration.languages import language_and_script, normalize_language, normalize_languages

# The kinds of tasks whose rows are pairs of texts, of which a subset's languages name the first and the second.
_PAIRS = ("BitextMining", "STS")
_NAMED = 40  # subsets that an error names


def short_tag(code: str) -> str:
    """The canonical tag of a language, without a script that the language is usually written in.

    Raises:
        LanguageTagError: for a code that names no language.

    Examples:
        >>> short_tag("ukr-Cyrl"), short_tag("zho-Hant"), short_tag("srp-Latn")
        ('uk', 'zh-Hant', 'sr-Latn')
    """
    tag = normalize_language(code)
    language = langcodes.Language.get(tag).language or tag
    return language if language_and_script(language) == language_and_script(tag) else tag


def subset_languages(metadata: Any, subset: str) -> list[str]:
    """The tags of the languages of a task's subset, in the order in which mteb states them.

    Args:
        metadata: mteb's metadata of the task.
        subset: the subset, or the column of one language in a task whose columns are languages.

    Raises:
        LanguageTagError: for something else than a language, such as the programming languages of code.
    """
    stated = metadata.eval_langs
    codes = stated.get(subset, [subset]) if isinstance(stated, dict) else stated
    return list(dict.fromkeys(short_tag(code) for code in codes))


def subsets_in(metadata: Any, languages: Sequence[str]) -> dict[str, set[str]]:
    """The subsets of a task that have one of these languages, perhaps by another name (`zh` for `cmn`), each with
    those that it has.

    Raises:
        LanguageTagError: for an unknown language.
        UnknownLanguageError: when the task has none of them.
    """
    wanted = {tag: language_and_script(tag) for tag in normalize_languages(list(languages))}
    found: dict[str, set[str]] = {}
    for subset in metadata.hf_subsets:
        try:
            present = {language_and_script(tag) for tag in subset_languages(metadata, subset)}
        except LanguageTagError:  # code
            continue
        if tags := {tag for tag, form in wanted.items() if form in present}:
            found[subset] = tags
    if not found:
        known = ", ".join(metadata.hf_subsets[:_NAMED])
        raise UnknownLanguageError(f"{metadata.name} has no texts in {', '.join(wanted)}; its subsets are {known}")
    return found


def language_of_texts(metadata: Any, subset: str, side: Callable[[], int]) -> str:
    """The language of the texts that a model is given.

    Args:
        metadata: mteb's metadata of the task.
        subset: the subset.
        side: tells, for pairs of texts in two languages, whether these are the first (0) or the second texts (1).

    Raises:
        MissingLanguageError: when the task does not tell it.
    """
    try:
        tags = subset_languages(metadata, subset)
    except LanguageTagError as error:
        raise MissingLanguageError(
            f"{_place(metadata, subset)}: {error}; give the language of its texts with language="
        ) from error
    forms = [language_and_script(tag) for tag in tags]
    if len(set(forms)) == 1:
        return tags[0]
    if pair := _pair(subset, forms) or (tags if len(tags) == 2 else None):
        if metadata.type in _PAIRS:
            return pair[side()]
    elif (named := _tag(subset)) and language_and_script(named) in forms:  # such as `no` of nor, nno and nob
        return named
    raise MissingLanguageError(
        f"{_place(metadata, subset)} has texts in {', '.join(tags)}, and mteb does not tell which of them a text has; "
        "give the language of its texts with language="
    )


def as_known(tag: str, known: Iterable[str]) -> str:
    """The name that a model has for a language: `zh` for `cmn` if it has learned `zh`; by default the tag itself."""
    names = list(known)
    same = [name for name in names if language_and_script(name) == language_and_script(tag)]
    return tag if tag in names or not same else same[0]


def _pair(subset: str, forms: list[tuple[str, str]]) -> list[str] | None:
    """The two languages that the name of a subset states, such as `de-en` or `acm_Arab-eng_Latn`."""
    parts = [_tag(part) for part in subset.split("-")]
    tags = [part for part in parts if part is not None]
    if len(parts) == len(tags) == 2 and {language_and_script(tag) for tag in tags} <= set(forms):
        return tags
    return None


def _tag(name: str) -> str | None:
    try:
        return short_tag(name)
    except LanguageTagError:
        return None


def _place(metadata: Any, subset: str) -> str:
    return f"{metadata.name}, subset {subset!r}"
