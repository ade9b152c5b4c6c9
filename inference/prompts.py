"""Prompts of zero-shot classification: templates in which `{}` stands for the label of a class.

    photo   one template for each of some forty languages, such as "This is a photo of {}." and "これは{}の写真です。";
            they were written for this package, so that the label can stand in its basic form
    clip    the 80 English templates with which CLIP classifies ImageNet (Radford et al. 2021), which ETCL's paper had
            translated by machine (Lee et al. 2022, appendix A.4)
    label   no template: the text is the label alone

A language without a template is asked by its labels alone. An English sentence around a foreign label would be a text
in no language; Babel-ImageNet's published results have the same rule (Geigle et al. 2024).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from ..configuration.errors import InputError
from ..configuration.languages import language_and_script, normalize_language

# Language -> its templates.
Prompts = Mapping[str, Sequence[str]]

PHOTO, CLIP, LABEL = PROMPT_SETS = ("photo", "clip", "label")
LABEL_ALONE = "{}"
_FILE = Path(__file__).with_name("prompts.json")


@cache
def prompt_set(name: str) -> Prompts:
    """One of `PROMPT_SETS`: the templates of each language.

    Raises:
        InputError: for another name.
    """
    if name not in PROMPT_SETS:
        raise InputError(f"there are no prompts called {name!r}; there are {', '.join(PROMPT_SETS)}")
    return {} if name == LABEL else json.loads(_FILE.read_text("utf-8"))[name]


def check_templates(templates: Iterable[str], place: str) -> None:
    """
    Raises:
        InputError: for a template without `{}`, whose text would be the same for all classes.
    """
    for template in templates:
        if LABEL_ALONE not in template:
            raise InputError(f"{place}: the template {template!r} has no {{}}, where the label of a class stands")


def templates_of(language: str, prompts: Prompts) -> list[str]:
    """The templates of a language, those of its own tag first, and else those of the same language and script (`pt`
    for `pt-BR`, `zh-Hant` for `zh-TW`, but not `sr` for `sr-Latn`); an empty list for a language without any."""
    language = normalize_language(language)
    if language in prompts:
        return list(prompts[language])
    written = language_and_script(language)
    return next((list(given) for tag, given in prompts.items() if language_and_script(tag) == written), [])


def photo_template(language: str) -> str | None:
    """The template of a language in the set `photo`; None for a language without one."""
    return next(iter(templates_of(language, prompt_set(PHOTO))), None)


def filled(template: str, label: str) -> str:
    """The text that a template makes of a label; other braces stay as they are."""
    return template.replace(LABEL_ALONE, label)
