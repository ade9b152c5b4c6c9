"""Language tags: one spelling for each language, and no guessing."""

import builtins
from collections.abc import Callable

import pytest

from babelens.configuration.errors import InputError, LanguageTagError, UnknownLanguageError
from babelens.configuration.languages import language_for_each, language_id, normalize_language, normalize_languages

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


@pytest.mark.parametrize(("spelled", "canonical"), SPELLINGS.items())
def test_one_spelling(spelled: str, canonical: str) -> None:
    assert normalize_language(spelled) == canonical
    assert normalize_language(canonical) == canonical


@pytest.mark.parametrize(("deprecated", "canonical"), [("iw", "he"), ("in", "id"), ("zh-yue", "yue"), ("tl", "fil")])
def test_deprecated_tags_are_replaced(deprecated: str, canonical: str) -> None:
    assert normalize_language(deprecated) == canonical


@pytest.mark.parametrize(
    "tag", ["", "d", "english", "de-", "-de", "de--AT", "de AT", "e1", None, 7, ["de"], "xx", "de-JJ"]
)
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


@pytest.mark.parametrize("language", [True, 5, b"de", {"de": 1}, [["de"]], [None], iter(["de"])])
def test_what_is_no_list_of_tags_is_refused(language: object) -> None:
    with pytest.raises(LanguageTagError, match="is not a language tag"):
        language_for_each(language, 1)  # type: ignore[arg-type]


KNOWN = ["en", "zh", "zh-Hant", "no", "de", "sr", "pt", "ru"]


@pytest.mark.parametrize(
    ("asked", "meant"), [("zh-TW", "zh-Hant"), ("nb", "no"), ("de-AT", "de"), ("sr-Latn", "sr"), ("pt-BR", "pt")]
)
def test_an_unknown_language_gets_a_near_one_as_suggestion(asked: str, meant: str) -> None:
    with pytest.raises(UnknownLanguageError, match=rf"its languages are en, .*, ru; did you mean '{meant}'\?$"):
        language_id(asked, KNOWN)


@pytest.mark.parametrize("asked", ["uk", "ja", "cs", "sv"])
def test_no_language_is_suggested_if_none_is_near(asked: str) -> None:
    with pytest.raises(UnknownLanguageError, match=r"its languages are en, .*, ru$"):
        language_id(asked, KNOWN)


@pytest.mark.parametrize(("country", "language"), [("jp", "ja"), ("CN", "zh"), ("gr", "el"), ("dk", "da")])
def test_a_country_is_answered_with_its_language(country: str, language: str) -> None:
    with pytest.raises(LanguageTagError, match=f"{country.upper()} is a country: did you mean '{language}'"):
        normalize_language(country)


def test_without_langcodes_form_and_case_are_still_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import: Callable[..., object] = builtins.__import__

    def import_without_langcodes(name: str, *arguments: object) -> object:
        if name == "langcodes":
            raise ImportError(name)
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", import_without_langcodes)
    assert {spelled: normalize_language(spelled) for spelled in SPELLINGS} == SPELLINGS
    with pytest.raises(LanguageTagError):
        normalize_language("english")


@pytest.mark.parametrize(("name", "tag"), [("Ukrainian", "uk"), ("german", "de"), ("Javanese", "jv")])
def test_the_name_of_a_language_suggests_its_tag(name, tag):
    with pytest.raises(LanguageTagError, match=f"did you mean '{tag}'"):
        normalize_language(name)
