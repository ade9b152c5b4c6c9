"""CLDR's pinned package as translations."""

import pytest

from babelens.data.emoji.benchmark import load_emoji_names
from babelens.emoji_names import names_for


@pytest.mark.slow
def test_the_pinned_package_has_names_in_many_languages():
    names = load_emoji_names()
    assert len(names.languages) >= 110 and {"mi", "uk", "zh", "sw", "qu"} <= set(names.languages)
    (words, english), (_, keywords) = names.translations("de", "en", 0.2).groups
    assert 1500 < len(words) < 2000 and 1500 < len(keywords) < 2000
    assert dict(zip(english, words, strict=True))["dog"] == "Hund"
    # Rundi has no names; its sentences look like Kinyarwanda, and are taken for it by what they look like.
    kinyarwanda = names.sample("rw")
    assert names_for({"rn": kinyarwanda}, "en", names)["rn"].language == "rw"
