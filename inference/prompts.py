"""Prompts of zero-shot classification: templates in which `{}` stands for the label of a class.

    photo   one template for each of some forty languages, such as "This is a photo of {}." and "これは{}の写真です。"
            (`zero_shot_pipeline`)
    clip    the 80 English templates with which CLIP classifies ImageNet (Radford et al. 2021), which ETCL's paper had
            translated by machine (Lee et al. 2022, appendix A.4)
    label   no template: the text is the label alone

A language without a template is asked by its labels alone. An English sentence around a foreign label would be a text
in no language; Babel-ImageNet's published results have the same rule (Geigle et al. 2024).
"""

import json
from functools import cache
from pathlib import Path

from ..configuration.errors import InputError
from .zero_shot_pipeline import PHOTO_TEMPLATES, Prompts

PHOTO, CLIP, LABEL = PROMPT_SETS = ("photo", "clip", "label")
_CLIP_FILE = Path(__file__).with_name("clip_prompts.json")


@cache
def prompt_set(name: str) -> Prompts:
    """One of `PROMPT_SETS`: the templates of each language.

    Raises:
        InputError: for another name.
    """
    if name not in PROMPT_SETS:
        raise InputError(f"there are no prompts called {name!r}; there are {', '.join(PROMPT_SETS)}")
    if name == CLIP:
        return json.loads(_CLIP_FILE.read_text("utf-8"))
    return PHOTO_TEMPLATES if name == PHOTO else {}
