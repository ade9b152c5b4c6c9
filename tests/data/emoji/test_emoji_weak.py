"""Names against keywords: drawn reproducibly, never in one language, never the name itself."""

from datasets import Dataset

from babelens.data import weakly_aligned_emoji
from babelens.data.emoji.benchmark import _with_keyword_captions
from babelens.data.emoji.build import FEATURES, KEYWORD_SEPARATOR

NAMES = {"tent": {"en": "tent", "de": "Zelt", "ja": "テント"}, "flag": {"en": "flag", "de": "Flagge"}}
KEYWORDS = {
    "tent": {"en": "camping, tent", "de": "Camping, Zelt, Zeltplatz", "ja": "a, b, c, d, e, f, g, テント"},
    "flag": {"en": "flag", "de": "Flagge, Fahne"},
}


def captions(texts):
    return [{"language": language, "text": text} for language, text in texts.items()]


def emoji(*names):
    rows = [
        {
            "image": None,
            "image_id": name,
            "captions": captions(NAMES[name]),
            "split": "train",
            "vendor": "noto",
            "emoji": name,
            "category": "Objects",
            "keywords": captions(KEYWORDS[name]),
        }
        for name in names
    ]
    return Dataset.from_list(rows, features=FEATURES)


def test_every_row_is_a_name_and_keywords_in_another_language():
    weak = weakly_aligned_emoji(emoji("tent", "flag"), pairs=99)
    assert weak.features == FEATURES
    assert weak["image_id"] == ["tent"] * 6 + ["flag"]  # no keyword but `flag` itself is left in English
    for row in weak:
        name, keywords = row["captions"]
        own = NAMES[row["image_id"]]
        assert name["text"] == own[name["language"]]
        assert name["language"] != keywords["language"]
        words = keywords["text"].split(KEYWORD_SEPARATOR)
        there = KEYWORDS[row["image_id"]][keywords["language"]].split(KEYWORD_SEPARATOR)
        assert set(words) <= set(there) - {own[keywords["language"]]}
        assert len(words) == len(set(words)) == min(5, len(there) - 1)


def test_without_keywords_no_caption_is_empty():
    """CLDR names some emoji without keywords."""
    bare = emoji("tent", "flag").map(
        lambda row: {
            "keywords": [each | {"text": "" if each["language"] == "de" else "a, , b"} for each in row["keywords"]]
        }
    )
    weak = weakly_aligned_emoji(bare, pairs=99)
    for table in (_with_keyword_captions(bare.with_format("arrow")[:], 3), weak.with_format("arrow")[:]):
        for row in table["captions"].to_pylist():
            assert all(word.strip() for each in row for word in each["text"].split(KEYWORD_SEPARATOR)), row
    assert {row["captions"][1]["language"] for row in weak} == {"en", "ja"}
