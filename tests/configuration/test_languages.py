"""Language tags: one spelling for each language, and no guessing."""

import pytest

from babelens.utils import in_folders
from babelens.utils.errors import InputError, LanguageTagError
from babelens.utils.languages import (
    counts_as,
    is_same_language,
    language_for_each,
    language_id,
    learned_language,
    normalize_language,
    normalize_languages,
)

SPELLINGS = {
    "de": "de",
    "DE": "de",
    "zh_cn": "zh-CN",
    "ZH-hans-CN": "zh-Hans-CN",
    "sr-latn": "sr-Latn",
    "pt-br": "pt-BR",
    "es-419": "es-419",
    "yue": "yue",
}


def test_one_spelling() -> None:
    deprecated = {"iw": "he", "in": "id", "zh-yue": "yue", "tl": "fil"}
    for spelled, canonical in (SPELLINGS | deprecated).items():
        assert normalize_language(spelled) == normalize_language(canonical) == canonical


@pytest.mark.parametrize("tag", ["", "english", "de-", "de AT", None, 7, "xx", "de-JJ"])
def test_what_names_no_language_is_refused_by_name(tag: object) -> None:
    with pytest.raises(LanguageTagError) as refusal:
        normalize_language(tag)  # type: ignore[arg-type]
    assert repr(tag) in str(refusal.value)


def test_several_tags_keep_their_order_and_appear_once() -> None:
    assert normalize_languages(["de", "EN", "De", "fr"]) == ["de", "en", "fr"]
    assert normalize_languages("DE") == ["de"]


def test_one_language_for_each_text() -> None:
    assert language_for_each("DE", 3) == ["de", "de", "de"]
    assert language_for_each(["de", "EN"], 2) == ["de", "en"]
    with pytest.raises(InputError, match="3 texts came with 2 language tags"):
        language_for_each(["de", "en"], 3)
    with pytest.raises(LanguageTagError, match="'xx'"):
        language_for_each(["de", "xx"], 2)


@pytest.mark.parametrize("language", [True, b"de", {"de": 1}, [None]])
def test_what_is_no_list_of_tags_is_refused(language: object) -> None:
    with pytest.raises(LanguageTagError, match="is not a language tag"):
        language_for_each(language, 1)  # type: ignore[arg-type]


KNOWN = ["en", "zh", "zh-Hant", "no", "de", "sr", "pt", "ru"]


@pytest.mark.parametrize(("asked", "meant"), [("sr-Latn", "sr"), ("da", "no"), ("yue", "zh-Hant"), ("uz-Cyrl", "uz")])
def test_an_unknown_language_gets_a_near_one_as_suggestion(asked: str, meant: str) -> None:
    with pytest.raises(LanguageTagError, match=rf"its languages are en, .*, ru, uz; did you mean '{meant}'\?$"):
        language_id(asked, [*KNOWN, "uz"])


# What is asked of a model, what it has learned, and what it reads the text as; "" for a refusal.
MEANT = [
    ("mi", "en mi-Latn", "mi-Latn"),
    ("mi-Latn", "en mi", "mi"),
    ("arb-Arab", "en ar", "ar"),
    ("ar", "en arb-Arab", "arb-Arab"),
    ("arb_Arab", "en ar arz", "ar"),
    ("arz", "en ar", "ar"),
    ("azj", "az-Arab az", "az"),
    ("az", "azj-Latn", "azj-Latn"),
    ("ekk", "et", "et"),
    ("et", "ekk-Latn", "ekk-Latn"),
    ("fil", "tl", "tl"),
    ("tl", "fil", "fil"),
    ("zsm", "id ms", "ms"),
    ("npi-Deva", "hi ne", "ne"),
    ("swh", "sw", "sw"),
    ("ukr_Cyrl", "ru uk", "uk"),
    ("uk-UA", "ru uk", "uk"),
    ("uk", "ru uk-UA", "uk-UA"),
    ("pt-BR", "pt-PT pt", "pt"),
    ("pt-BR", "es pt-PT", "pt-PT"),
    ("en-GB", "en de", "en"),
    ("es-MX", "es-ES es-419", "es-419"),
    ("zh-TW", "zh zh-Hant", "zh-Hant"),
    ("zh-CN", "zh-Hant zh", "zh"),
    ("zh-Hans", "zh-Hant zh", "zh"),
    ("cmn-Hans", "zh-Hant zh-Hans", "zh-Hans"),
    ("zh-Hans", "zh-Hant", ""),
    ("zh-TW", "zh", ""),
    ("sr-Latn", "sr-Cyrl", ""),
    ("sr-Latn", "sr-Cyrl sr-Latn", "sr-Latn"),
    ("sr", "sr-Latn sr-Cyrl", "sr-Cyrl"),
    ("sr", "sr-Latn", "sr-Latn"),
    ("sh", "sr sr-Latn", "sr-Latn"),
    ("uz-Cyrl", "uz", ""),
    ("ace", "ace-Arab", ""),
    ("ace", "ace-Arab ace-Latn", "ace-Latn"),
    ("no", "nb sv", "nb"),
    ("nb", "no da", "no"),
    ("iw", "en he", "he"),
    ("he", "en iw", "he"),
    ("in", "en id", "id"),
    ("ji", "en yi", "yi"),
    ("mo", "en ro", "ro"),
    ("da", "no", ""),
    ("uk", "ru", ""),
    ("und", "en de", ""),
    ("ja", "und en", ""),
]


def test_a_model_answers_to_all_names_of_its_languages() -> None:
    for asked, learned, meant in MEANT:
        known = [normalize_language(tag) for tag in learned.split()]
        if meant:
            assert known[language_id(asked, known)] == normalize_language(meant), asked
        else:
            with pytest.raises(LanguageTagError, match=repr(normalize_language(asked))):
                learned_language(asked, known)


def test_a_tag_means_another_one() -> None:
    assert is_same_language("en-GB", "en") and is_same_language("en", "en") and is_same_language("arb", "ar")
    assert not is_same_language("de", "en") and not is_same_language("und", "en") and not is_same_language("da", "no")


def test_columns_count_as_the_language_that_is_asked_for() -> None:
    asked = ["mi-Latn", "ar", "pt-PT", "no"]
    found = {tag: counts_as(tag, asked) for tag in ("mi", "arb-Arab", "pt-BR", "pt-PT", "da", "nb", "arz")}
    assert found == {"mi": "mi-Latn", "arb-Arab": "ar", "pt-PT": "pt-PT"} | dict.fromkeys(("pt-BR", "da", "nb", "arz"))


def test_texts_of_a_near_language_are_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert learned_language("lb", ["en", "de"]) == "de" and "lb" in caplog.text
    with pytest.raises(LanguageTagError):
        learned_language("lb", ["en", "de"], farthest=5)


def test_no_language_is_suggested_if_none_is_near() -> None:
    with pytest.raises(LanguageTagError, match=r"its languages are en, .*, ru$"):
        language_id("ja", KNOWN)


def test_folders_compare_tags_by_their_form() -> None:
    assert {spelled: in_folders.normalize_language(spelled) for spelled in SPELLINGS} == SPELLINGS
    for tag, canonical in {"iw": "he", "ji": "yi", "mo": "ro", "sh": "sr-Latn", "uk_UA": "uk-UA"}.items():
        assert in_folders.normalize_language(tag) == canonical
    for asked, known, meant in [
        ("mi", "en mi-Latn", "mi-Latn"),
        ("mi-Latn", "en mi", "mi"),
        ("uk-UA", "ru uk", "uk"),
        ("pt-BR", "pt-PT pt", "pt"),
        ("zh-TW", "zh zh-Hant", "zh-Hant"),
        ("zh-TW", "zh", ""),
        ("zh-CN", "zh-Hant zh", "zh"),
        ("sr-Latn", "sr", ""),
        ("sr", "sr-Latn", "sr-Latn"),
        ("mi", "uk ru", ""),
    ]:
        if meant:
            assert in_folders.learned_language(asked, known.split()) == meant
        else:
            with pytest.raises(ValueError, match="has not learned"):
                in_folders.learned_language(asked, known.split())
    assert in_folders.is_same_language("en-GB", "en") and not in_folders.is_same_language("de", "en")
    with pytest.raises(ValueError, match="'english' is not a language tag"):
        in_folders.normalize_language("english")
