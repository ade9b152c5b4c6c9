"""The replacement for `language_matching` in saved folders, in `common.py`: language tags compared by form."""

from collections.abc import Sequence

from .in_folders import UNDETERMINED, language_and_script, normalize_language

_SEVERAL_SCRIPTS = "az bs kk ks ku ky mn ms pa sd sr tg tt ug uz zh".split()  # noqa: SIM905


def did_you_mean_language(language: str, known: Sequence[str]) -> str:
    return f"; there are: {', '.join(known)}"


def learned_language(language: str, known: Sequence[str]) -> str:
    """Returns the learned language with the same first subtag, and the same script if it is written in several."""
    language = normalize_language(language)
    if language in known:
        return language
    primary, script = language_and_script(language)
    alike = [tag for tag in known if tag.partition("-")[0] == primary != UNDETERMINED]
    fitting = [tag for tag in alike if language_and_script(tag)[1] == script]
    if not fitting and not (script and primary in _SEVERAL_SCRIPTS):
        fitting = [tag for tag in alike if not script or not language_and_script(tag)[1]]
    if not fitting:
        raise ValueError(f"this model has not learned {language!r}; its languages are {', '.join(known)}")
    return min(fitting, key=len)


def language_id(language: str, known: Sequence[str]) -> int:
    return list(known).index(learned_language(language, known))


def is_same_language(one: str, other: str) -> bool:
    """Returns whether two tags mean the same language, such as `en-GB` and `en`."""
    try:
        return learned_language(one, [other]) == other
    except ValueError:
        return False
