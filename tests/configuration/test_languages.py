import pytest

from babelens.utils import in_folders, matching_in_folders
from babelens.utils.errors import LanguageTagError
from babelens.utils.language_matching import language_id, learned_language
from babelens.utils.languages import normalize_language

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


def test_what_names_no_language_is_refused_by_name() -> None:
    for tag in ("", "english", "de-", "de AT", None, 7, "xx", "de-JJ"):
        with pytest.raises(LanguageTagError) as refusal:
            normalize_language(tag)  # type: ignore[arg-type]
        assert repr(tag) in str(refusal.value)


KNOWN = ["en", "zh", "zh-Hant", "no", "de", "sr", "pt", "ru"]


def test_an_unknown_language_gets_a_near_one_as_suggestion() -> None:
    for asked, meant in (("sr-Latn", "sr"), ("da", "no"), ("yue", "zh-Hant")):
        with pytest.raises(LanguageTagError, match=rf"its languages are en, .*, ru; did you mean '{meant}'\?$"):
            language_id(asked, KNOWN)
    with pytest.raises(LanguageTagError, match=r"its languages are en, .*, ru$"):
        language_id("ja", KNOWN)


# The requested language, the learned ones, and the one as which the model reads the text; "" for a refusal.
MEANT = [
    ("mi", "en mi-Latn", "mi-Latn"),
    ("arb-Arab", "en ar", "ar"),
    ("ar", "en arb-Arab", "arb-Arab"),
    ("arz", "en ar", "ar"),
    ("zsm", "id ms", "ms"),
    ("pt-BR", "es pt-PT", "pt-PT"),
    ("es-MX", "es-ES es-419", "es-419"),
    ("zh-TW", "zh zh-Hant", "zh-Hant"),
    ("cmn-Hans", "zh-Hant zh-Hans", "zh-Hans"),
    ("zh-TW", "zh", ""),
    ("ko-KR", "ja ko-Hang", "ko-Hang"),
    ("kor_Hang", "ko", "ko"),
    ("jpn_Hira", "ja", "ja"),
    ("azb", "azj-Latn azb-Arab", "azb-Arab"),
    ("az-IR", "azj-Latn azb-Arab", "azb-Arab"),
    ("acm", "acm-Arab apc-Arab", "acm-Arab"),
    ("crh", "tr crh-Latn", "crh-Latn"),
    ("ps", "fa pbt-Arab", "pbt-Arab"),
    ("pbt_Arab", "fa ps", "ps"),
    ("qu", "es quy-Latn", "quy-Latn"),
    ("az", "azb-Arab", ""),
    ("sr-Latn", "sr-Cyrl", ""),
    ("sr", "sr-Latn sr-Cyrl", "sr-Cyrl"),
    ("no", "nb sv", "nb"),
    ("da", "no", ""),
    ("uk", "ru", ""),
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


def test_texts_of_a_near_language_are_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert learned_language("lb", ["en", "de"]) == "de" and "lb" in caplog.text
    with pytest.raises(LanguageTagError):
        learned_language("lb", ["en", "de"], farthest=5)


def test_folders_compare_tags_by_their_form() -> None:
    assert {spelled: in_folders.normalize_language(spelled) for spelled in SPELLINGS} == SPELLINGS
    for tag, canonical in {"iw": "he", "ji": "yi", "mo": "ro", "sh": "sr-Latn", "uk_UA": "uk-UA"}.items():
        assert in_folders.normalize_language(tag) == canonical
    for asked, known, meant in [
        ("mi", "en mi-Latn", "mi-Latn"),
        ("pt-BR", "pt-PT pt", "pt"),
        ("zh-TW", "zh zh-Hant", "zh-Hant"),
        ("zh-TW", "zh", ""),
        ("sr-Latn", "sr", ""),
        ("mi", "uk ru", ""),
    ]:
        if meant:
            assert matching_in_folders.learned_language(asked, known.split()) == meant
        else:
            with pytest.raises(ValueError, match="has not learned"):
                matching_in_folders.learned_language(asked, known.split())
    assert matching_in_folders.is_same_language("en-GB", "en") and not matching_in_folders.is_same_language("de", "en")
    with pytest.raises(ValueError, match="'english' is not a language tag"):
        in_folders.normalize_language("english")


@pytest.mark.parametrize(("given", "meant"), [("Polish", "'pl'"), ("jp", "'ja'")])
def test_names_of_languages_and_codes_of_countries_are_answered_by_a_tag(given, meant):
    with pytest.raises(LanguageTagError, match=meant):
        normalize_language(given)
