"""Which of a model's or a data set's languages a BCP-47 tag means, by CLDR's distances (`langcodes`)."""

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .errors import LanguageTagError, suggestion
from .languages import language_and_script, normalize_language

# CLDR's distances: 5 from 'pt-BR' to 'pt-PT', 1 from 'nb' to 'no', 10 from 'arz' to 'ar', 12 from 'da' to 'no', and 24
# from 'uk' to 'ru', a useless suggestion.
_NEAR, _SUGGESTED = 10, 14
SAME = 5  # the same language under another name or in another country

logger = logging.getLogger(__name__)


def did_you_mean_language(language: str, known: Iterable[str]) -> str:
    """Returns the ending for an error about an unknown language, such as `; did you mean 'zh-Hant'?` for `zh-TW`, or
    "" if readers of the known languages are unlikely to read it."""
    import langcodes

    for ignore_script in (False, True):
        nearest, _ = langcodes.closest_match(language, list(known), _SUGGESTED, ignore_script=ignore_script)
        if nearest != "und":
            return suggestion(nearest)
    return ""


def counts_as(tag: str, asked: Sequence[str]) -> str | None:
    """Returns the requested language that a tag matches, without its region or usual script or under another name, or
    None: `en` for `en-US`, `zh` for `zh-Hans-CN` but not for `zh-TW`, `ar` for `arb-Arab`."""
    if tag in asked:
        return tag
    shorter = (each for each in asked if tag.startswith(f"{each}-"))
    found = next((each for each in shorter if language_and_script(tag) == language_and_script(each)), None)
    return found or nearest_language(tag, tuple(asked), 0) or None


def learned_language(language: str, known: Sequence[str], farthest: int = _NEAR) -> str:
    """Returns the learned language that a tag means: the nearest one with the same script by CLDR's distances, up to
    `farthest`. A tag without a script or a region matches any script.

    Examples:
        >>> learned_language("arb-Arab", ["en", "ar", "pt"]), learned_language("pt-BR", ["en", "ar", "pt"])
        ('ar', 'pt')
    """
    language = normalize_language(language)
    found = language if language in known else nearest_language(language, tuple(known), farthest)
    if not found:
        raise LanguageTagError(
            f"this model has not learned {language!r}; its languages are {', '.join(known)}"
            f"{did_you_mean_language(language, known)}"
        )
    return found


def is_same_language(one: str, other: str) -> bool:
    """Returns whether two tags mean the same language, such as `en-GB` and `en`."""
    return one == other or bool(nearest_language(one, (other,), SAME))


@lru_cache(1 << 10)
def nearest_language(language: str, known: tuple[str, ...], farthest: int = _NEAR) -> str:
    """Returns the known language that is nearest to a canonical tag and has its script; "" beyond `farthest`."""
    if language.partition("-")[0] in ("und", "mul", "zxx"):
        return ""
    others = [tag for tag in known if tag != "und"]
    if "-" in language:
        script = language_and_script(language)[1]
        others = [tag for tag in others if language_and_script(tag)[1] == script]
    distance, found = min(((_distance(language, tag), tag) for tag in others), default=(1 << 10, ""))
    if distance > farthest:
        return ""
    if distance > SAME:
        logger.warning("this model has not learned %s: its texts are read as %s, which is near", language, found)
    return found


def _distance(language: str, tag: str) -> int:
    """Returns CLDR's distance; of one language in a script that CLDR does not expect, `SAME` (`azb`, `azb-Arab`), and
    of a macrolanguage and a member for which CLDR has no distance, the greatest that is near (`ps`, `pbt`)."""
    import langcodes
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    asked, other = (each.partition("-")[0] for each in (language, tag))
    distance = langcodes.tag_distance(language, tag)
    if asked == other:
        return min(distance, SAME)
    is_member = MACROLANGUAGES.get(asked) == other and asked not in LIKELY_SUBTAGS
    of_macro = is_member or MACROLANGUAGES.get(other) == asked
    is_written_alike = language_and_script(language)[1] == language_and_script(tag)[1]
    return min(distance, _NEAR) if of_macro and is_written_alike else distance


def language_id(language: str, known: list[str]) -> int:
    return known.index(learned_language(language, known))
