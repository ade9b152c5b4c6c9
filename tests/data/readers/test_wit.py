from collections import Counter

import pytest
from datasets import Dataset, Features, Value

from babelens.data import SkippedImage, load_wit, weak_pairs
from babelens.data.corpus.corpus import CAPTIONS
from babelens.data.readers import wit as reader
from babelens.data.readers.wit import wit_split
from babelens.utils.errors import CorpusError
from tests.support.image_sources import drawn
from tests.support.published_rc3 import write_wit

DOME = "https://upload.wikimedia.org/wikipedia/commons/9/93/Half_Dome%2C_Yosemite.jpg"
LAKE = "https://upload.wikimedia.org/wikipedia/commons/f/f6/Tonlesap.jpg"
ENGLISH = [("en", 'Half Dome, "the" rock'), ("en", "Half Dome is a rock in Yosemite.")]
MOUNTAIN = [*ENGLISH, ("he", "האף דום"), ("de", "Der Half Dome")]
TONLE_SAP = [("id", "citra satelit"), ("en", "Tonlé Sap is a lake.")]


def page(language, reference=None, page=None):
    return {"language": language, "caption_reference_description": reference, "context_page_description": page}


def image(width):
    return drawn(0, (9, width))


@pytest.fixture
def wit(tmp_path):
    dome = [
        page("en", 'Half Dome, "the" rock', "Half Dome is a\nrock in Yosemite."),
        page("iw", "האף דום", "x" * 10_001),
        page("klingon", "Qo'noS"),
        page("de", "Der Half Dome", "Der Half Dome"),
    ]
    lake, island = [page("id", "citra satelit"), page("en", None, "Tonlé Sap is a lake.")], [page("sw", "kisiwa")]
    write_wit(tmp_path / "wit", [(DOME, image(1), dome), (LAKE, image(2), lake), (f"{LAKE}x", image(3), island)])
    return tmp_path / "wit"


def texts(corpus):
    return {row["image_id"]: [(c["language"], c["text"]) for c in row["captions"]] for row in corpus}


@pytest.mark.parametrize("streaming", [True, False])
def test_an_image_has_the_texts_of_its_pages(wit, streaming, caplog):
    caplog.set_level("INFO")
    for _ in range(2):  # also when `datasets` has the files in its cache
        corpus = load_wit(wit, streaming=streaming)
        assert texts(corpus) == {DOME: MOUNTAIN, LAKE: TONLE_SAP}
        assert {row["image_id"]: row["image"].width for row in corpus} == {DOME: 1, LAKE: 2}
    pairs = [(example["text_a"], example["text_b"]) for example in weak_pairs(corpus, ["de", "en"])]
    assert pairs == [("Der Half Dome", MOUNTAIN[0][1]), ("Der Half Dome", MOUNTAIN[1][1])]
    assert streaming or "read 2 of 3 rows; left out 1 with texts in fewer than 2 languages" in caplog.text


def test_languages_texts_and_their_number_are_chosen(wit):
    assert texts(load_wit(wit, ["en", "id"])) == {LAKE: TONLE_SAP}
    assert texts(load_wit(wit, texts=("reference",))) == {DOME: [MOUNTAIN[0], *MOUNTAIN[2:]]}
    with pytest.raises(CorpusError, match="title; there are reference, page"):
        load_wit(wit, texts=("title",))
    with pytest.raises(CorpusError, match="no such file"):
        load_wit(wit / "absent")


def test_bad_images_are_refused_or_left_out_and_named(tmp_path):
    both = [page("en", "a rock"), page("de", "ein Fels")]
    write_wit(tmp_path / "wit", [(DOME, image(1), both), (LAKE, b"?", both)])
    with pytest.raises(CorpusError, match=rf"WIT {LAKE}.*not an image"):
        list(load_wit(tmp_path / "wit"))
    skipped: list[SkippedImage] = []
    corpus = load_wit(tmp_path / "wit", on_bad_image="skip", skipped=skipped)
    assert list(texts(corpus)) == [DOME] and [image.image_id for image in skipped] == [LAKE]


def test_every_language_has_its_images_and_none_is_in_two_splits(wit, monkeypatch):
    tags = [["en"] + ["de"] * (n % 2) + ["tg"] * (n in (3, 4, 5)) for n in range(60)]
    captions = [[{"language": tag, "text": f"{tag} {n}"} for tag in own] for n, own in enumerate(tags)]
    columns = {"image_id": [f"https://a/{n}.jpg" for n in range(60)], "captions": captions}
    corpus = Dataset.from_dict(columns, features=Features(image_id=Value("string"), captions=CAPTIONS))
    monkeypatch.setattr(reader, "_SIZES", (50, 9, 4))
    found = {name: wit_split(corpus, name) for name in ("train", "validation", "test")}
    ids = [image for split in found.values() for image in split["image_id"]]
    assert len(ids) == len(set(ids))
    for name in ("validation", "test"):
        counts = Counter(caption["language"] for row in found[name]["captions"] for caption in row)
        assert counts == {"en": 9, "de": 4, "tg": 1}
    assert Counter(c["language"] for row in found["train"]["captions"] for c in row)["tg"] == 1
    turned = wit_split(corpus.select(range(59, -1, -1)), "test")
    assert {*turned["image_id"]} == {*found["test"]["image_id"]}
    of_files = load_wit(wit, split="validation", streaming=False)
    assert sorted(of_files["image_id"]) == sorted([DOME, LAKE])  # each has a language that has no other image
    with pytest.raises(CorpusError, match="streaming=False"):
        load_wit(wit, split="train")
