"""WIT's own files, in small: rows of one image come together, images are found, bad rows are named."""

import csv
import gzip
import io
from collections import Counter

import PIL.Image
import pytest
from datasets import Dataset, Features, Value

from babelens.data import SkippedImage, load_wit, weak_pairs
from babelens.data.corpus.corpus import CAPTIONS
from babelens.data.readers import wit as reader
from babelens.data.readers.wit import COLUMNS, wit_split
from babelens.utils.errors import CorpusError, LanguageTagError

DOME = "https://upload.wikimedia.org/wikipedia/commons/9/93/Half_Dome%2C_Yosemite.jpg"
LAKE = "https://upload.wikimedia.org/wikipedia/commons/f/f6/Tonlesap.jpg"
ATTRIBUTION = {"caption_attribution_description": "Foto"}
MOUNTAIN = [
    ("en", 'Half Dome, "the" rock'),
    ("en", "Half Dome is a rock in Yosemite."),
    ("he", "האף דום"),
    ("de", "Der Half Dome"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "DEFAULT_CACHE", tmp_path / "cache")


def row(language, url=DOME, reference="", page="", **others):
    texts = {"caption_reference_description": reference, "context_page_description": page}
    facts = {"mime_type": "image/jpeg", "is_main_image": "true", "attribution_passes_lang_id": "true"}
    return dict.fromkeys(COLUMNS, "") | facts | {"language": language, "image_url": url} | texts | others


def write(file, *rows, header=COLUMNS):
    """A file as WIT's are; a row that is a text is written unchanged."""
    buffer = io.StringIO(newline="")
    lines = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    lines.writerow(header)
    for cells in rows:
        buffer.write(cells) if isinstance(cells, str) else lines.writerow(cells.values())
    content = buffer.getvalue().encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


@pytest.fixture
def wit(tmp_path):
    """Two of WIT's files: a mountain in English, German and Hebrew, a lake in English and Indonesian."""
    (tmp_path / "wit").mkdir()
    write(
        tmp_path / "wit" / "wit_v1.train.all-00000-of-00002.tsv.gz",
        row("en", reference='Half Dome, "the" rock', page="Half Dome is a\nrock in Yosemite."),
        row("iw", reference="האף דום"),
        row("en", LAKE, page="Tonlé Sap is a lake."),
        row("sw", LAKE.replace("sap", "other"), reference="ziwa"),
    )
    write(
        tmp_path / "wit" / "wit_v1.train.all-00001-of-00002.tsv.gz",
        row("de", DOME.replace("https", "http"), reference="Der Half Dome"),
        row("de", reference="Der Half Dome", **ATTRIBUTION | {"attribution_passes_lang_id": "false"}),
        row("id", LAKE, reference="citra satelit", caption_alt_text_description="peta", **ATTRIBUTION),
    )
    return tmp_path / "wit"


@pytest.fixture
def images(tmp_path):
    """A folder of images at the paths of their addresses, which may be percent-encoded."""
    for width, name in enumerate(("9/93/Half_Dome,_Yosemite.jpg", "f/f6/Tonlesap.jpg"), 1):
        path = tmp_path / "images" / "wikipedia" / "commons" / name
        path.parent.mkdir(parents=True)
        PIL.Image.new("RGB", (width, 9)).save(path)
    return tmp_path / "images"


def texts(corpus):
    return {row["image_id"]: [(c["language"], c["text"]) for c in row["captions"]] for row in corpus}


@pytest.mark.parametrize("streaming", [True, False])
def test_rows_of_one_image_come_together_with_their_image(wit, images, streaming):
    for _ in range(2):  # written to the cache, and read from there
        corpus = load_wit(wit, images, streaming=streaming)
        assert texts(corpus) == {DOME: MOUNTAIN, LAKE: [("en", "Tonlé Sap is a lake."), ("id", "citra satelit")]}
        assert {row["image_id"]: row["image"].width for row in corpus} == {DOME: 1, LAKE: 2}
    pairs = [(example["text_a"], example["text_b"]) for example in weak_pairs(corpus, ["de", "en"])]
    assert pairs == [("Der Half Dome", MOUNTAIN[0][1]), ("Der Half Dome", MOUNTAIN[1][1])]


def test_languages_texts_and_their_number_are_chosen(wit, images):
    lake = {LAKE: [("en", "Tonlé Sap is a lake."), ("id", "citra satelit")]}
    assert texts(load_wit(wit, images, ["en", "id"])) == lake
    captions = texts(load_wit(wit, images, texts=("reference",)))
    assert captions == {DOME: [MOUNTAIN[0], *MOUNTAIN[2:]]}
    others = texts(load_wit(wit, images, texts=("alt", "attribution"), min_languages=1))
    assert others == {LAKE: [("id", "peta"), ("id", "Foto")]}  # which did not pass as German
    with pytest.raises(CorpusError, match="title; there are reference, page"):
        load_wit(wit, images, texts=("title",))


@pytest.mark.parametrize("streaming", [True])
def test_missing_images_are_refused_or_left_out_and_named(wit, images, streaming):
    (images / "wikipedia/commons/f/f6/Tonlesap.jpg").unlink()
    with pytest.raises(CorpusError, match=r"Tonlesap\.jpg: no such file"):
        list(load_wit(wit, images, streaming=streaming))
    skipped: list[SkippedImage] = []
    corpus = load_wit(wit, images, on_bad_image="skip", skipped=skipped, streaming=streaming)
    assert list(texts(corpus)) == [DOME] and [image.image_id for image in skipped] == [LAKE]


@pytest.mark.parametrize("name", ["..%2Fsecret.jpg", "x/%2E%2E/../../secret.jpg"])
def test_images_outside_of_their_folder_are_not_found(tmp_path, images, name):
    PIL.Image.new("RGB", (9, 9)).save(images.parent / "secret.jpg")
    address = f"https://upload.wikimedia.org/{name}"
    write(tmp_path / "wit.tsv", row("en", address, "a secret"), row("de", address, "geheim"))
    with pytest.raises(CorpusError, match=r"\.jpg'?: (no image|.*no such file)"):
        list(load_wit(tmp_path / "wit.tsv", images))


BAD_ROWS = [
    ("en\tpage\n", CorpusError, "line 3: 2 cells"),
    ('en\t"page" \n', CorpusError, "line 3: not a row of cells"),
    (row("klingon", reference="Qo'noS"), LanguageTagError, "line 3: 'klingon'"),
    (row("en", "Half_Dome.jpg", "a rock"), CorpusError, "line 3: 'Half_Dome.jpg'"),
]


def test_bad_rows_and_files_are_refused_or_counted(tmp_path, images, caplog):
    file = tmp_path / "wit.tsv"
    for bad, error, message in BAD_ROWS:
        write(file, row("en", reference="a rock"), bad, row("de", reference="ein Fels"))
        with pytest.raises(error, match=rf"wit\.tsv {message}"):
            load_wit(file, images)
    write(file, row("en", reference="a rock"), *(cells for cells, _, _ in BAD_ROWS), row("de", reference="ein Fels"))
    assert texts(load_wit(file, images, on_bad_row="skip")) == {DOME: [("en", "a rock"), ("de", "ein Fels")]}
    assert "left out 4 that cannot be used" in caplog.text and "line 6: 'Half_Dome.jpg'" in caplog.text
    whole = write(tmp_path / "whole.tsv.gz", row("en", reference="a rock")).read_bytes()
    (tmp_path / "cut.tsv.gz").write_bytes(whole[:-12])
    write(tmp_path / "other.tsv", header=("language", "image_url"))
    for name, message in (("cut.tsv.gz", "Compressed file ended"), ("other.tsv", "expected the columns language")):
        with pytest.raises(CorpusError, match=message):
            load_wit(tmp_path / name, images, on_bad_row="skip")
    with pytest.raises(CorpusError, match="no such"):
        load_wit(file, tmp_path / "absent")


def test_every_language_has_its_images_and_none_is_in_two_splits(wit, images, monkeypatch):
    tags = [["en"] + ["de"] * (n % 2) + ["tg"] * (n in (3, 4, 5)) for n in range(60)]
    rows = [
        {"image_id": f"https://a/{n}.jpg", "captions": [{"language": t, "text": f"{t} {n}"} for t in own]}
        for n, own in enumerate(tags)
    ]
    corpus = Dataset.from_list(rows, features=Features(image_id=Value("string"), captions=CAPTIONS))
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
    of_files = load_wit(wit, images, split="validation", streaming=False)
    assert sorted(of_files["image_id"]) == sorted([DOME, LAKE])  # each has a language that has no other image
    with pytest.raises(CorpusError, match="streaming=False"):
        load_wit(wit, images, split="train")
