import zlib

import PIL.Image
import pytest

from babelens.data import load_cc3m, triplets
from babelens.utils.errors import CorpusError
from tests.support.published_rc3 import write_uc2

CAPTIONS = {
    "http://a.com/1.jpg": {"en": "a dog runs", "de": "ein Hund rennt", "fr": "un chien court"},
    "http://a.com/2.jpg": {"en": 'the "red" house', "de": 'das "rote" Haus', "fr": None},
    "http://a.com/3.jpg": {"en": "a boat", "de": None, "fr": ""},
    "http://a.com/4.jpg": {"en": '"quoted"', "de": "zitiert", "fr": "cité"},
}


def image_id(url):
    return str(zlib.crc32(url.encode()) & 0xFFFFFFFF)


@pytest.fixture
def folder(tmp_path):
    write_uc2(tmp_path / "cc3m", CAPTIONS)
    return tmp_path / "cc3m"


def test_captions_come_together_by_the_name_of_the_regions(folder):
    for _ in range(2):  # read, and from the cache
        corpus = load_cc3m(folder, ["en", "de", "fr"])
        expected = {image_id(url): {k: v for k, v in captions.items() if v} for url, captions in CAPTIONS.items()}
        del expected[image_id("http://a.com/3.jpg")]  # in one language alone
        expected[image_id("http://a.com/4.jpg")]["en"] = "quoted"
        texts = {row["image_id"]: {c["language"]: c["text"] for c in row["captions"]} for row in corpus}
        assert texts == expected and corpus.column_names == ["image_id", "captions"]
    assert len(triplets(corpus, [("en", "de")])) == 3 and len(triplets(corpus, [("de", "fr")])) == 2


def test_images_are_named_by_their_address(folder, tmp_path):
    (tmp_path / "images").mkdir()
    options = {"images": tmp_path / "images"}
    with pytest.raises(CorpusError, match="line 1: there is no image"):
        load_cc3m(folder, ["en", "de"], **options)
    for width, url in enumerate(CAPTIONS, 1):
        PIL.Image.new("RGB", (width, 9)).save(tmp_path / "images" / image_id(url), "PNG")
    assert [row["image"].width for row in load_cc3m(folder, ["en", "de"], **options)] == [1, 2, 4]


def test_files_that_do_not_have_the_same_lines_are_refused(folder):
    file = folder / "train_imageId2Ann_de.tsv"
    lines = file.read_bytes().splitlines(keepends=True)
    for changed, message in (
        (lines[:-1], "at its end: expected an image"),
        (lines[1:2] + lines[1:], "line 1: is about"),
    ):
        file.write_bytes(b"".join(changed))
        with pytest.raises(CorpusError, match=rf"train_imageId2Ann_de\.tsv,? {message}"):
            load_cc3m(folder, ["en", "de"])
