import gzip
import zlib
from pathlib import Path

import PIL.Image
import pytest
from datasets import IterableDataset

from babelens.data import load_cc3m, load_multi30k, triplets
from babelens.data.corpus.corpus import images_by_language_pair, languages_of
from babelens.data.readers.published import load_published
from babelens.utils.errors import CorpusError
from tests.support.published_layouts import (
    FLICKR,
    caption,
    write_cc12m,
    write_cc300k,
    write_flickr30k,
    write_mscoco_with_chinese,
    write_multi30k,
)
from tests.support.published_rc3 import write_uc2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        write_multi30k(Path("data/multi30k"))
        write_flickr30k(Path("data/flickr30k-karpathy"))
        write_mscoco_with_chinese(Path("data/mscoco"))
        write_cc12m()
        write_cc300k()
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_flickr30k_has_karpathys_splits():
    options = {"folder": "data/flickr30k-karpathy"}
    splits = {split: load_published("flickr30k", **options, split=split) for split in ("train", "validation", "test")}
    assert [corpus["image_id"] for corpus in splits.values()] == [FLICKR[:2], FLICKR[2:3], FLICKR[3:]]


def test_mscoco_has_mules_split_of_images_with_captions_in_all_languages():
    options = {"folder": "data/mscoco", "captions": ["coco", "coco-cn", "yj"], "rule": "mule"}
    splits = {split: load_published("coco", **options, split=split) for split in ("train", "validation", "test")}
    ids = {split: {*corpus["image_id"]} for split, corpus in splits.items()}
    # Six of twelve images have all languages, by any split of COCO-CN's: a third of them is for each of the two.
    assert {split: len(names) for split, names in ids.items()} == {"train": 8, "validation": 2, "test": 2}
    assert len(set.union(*ids.values())) == 12
    for split in ("validation", "test"):
        assert languages_of(splits[split]) == {"en": 10, "ja": 2, "zh": 2}
        assert all(name.startswith("COCO_train2014_") for name in ids[split])
    assert {*load_published("coco", **options, split="test")["image_id"]} == ids["test"]
    # Images with any number of captions, and images with one language only.
    counts = {" ".join(pair): count for pair, count in images_by_language_pair(splits["train"]).items()}
    assert counts == {"en en": 8, "en ja": 2, "en zh": 4, "ja ja": 2, "ja zh": 2, "zh zh": 4}


def test_cc12m_is_a_stream_of_archives():
    images = load_published("cc12m", files="data/cc12m")
    assert isinstance(images, IterableDataset) and images.num_shards == 2
    rows = list(images)
    assert len(rows) == 8 and {each["language"] for row in rows for each in row["captions"]} == {"en"}
    assert rows[0]["image"].size == (16, 16)
    copied = load_published("cc12m", files="data/cc12m", streaming=False)
    assert copied["captions"] == [row["captions"] for row in rows] and copied[0]["image"].size == (16, 16)


def test_cc300k_leaves_out_images_that_could_not_be_fetched():
    options = {"folder": "data/cc300k", "image_ids": "data/cc300k/cc300k.json", "languages": ["en", "de"]}
    texts = load_published("cc300k", **options)
    assert len(texts) == 6 and texts[1]["captions"][1] == {"language": "de", "text": caption("de", 1)}
    images = load_published("cc300k", **options, images="data/cc300k/images", on_missing_image="skip")
    assert images["image_id"] == [f"{number:08}.jpg" for number in range(5)]
    with pytest.raises(CorpusError, match=r"00000005\.jpg"):
        load_published("cc300k", **options, images="data/cc300k/images")


@pytest.mark.parametrize(
    ("name", "options", "found"),
    [
        ("multi30k", {"folder": "data/mscoco"}, "train.txt"),
        ("flickr30k", {"folder": "data/mscoco"}, r"no dataset_flickr30k\.json; it has .*coco-cn_test\.txt"),
        ("wit", {"files": "data/cc12m.tsv"}, "none that ends in .parquet"),
        ("multi30k", {"folder": "data/multi30k", "splits": "train"}, "splits"),
    ],
)
def test_what_is_not_the_layout_is_refused_with_what_was_found(name, options, found):
    with pytest.raises(CorpusError, match=found):
        load_published(name, **options)


def test_sentences_and_five_descriptions_belong_to_their_images(tmp_path):
    """Descriptions are of images in an order of their own."""
    write_multi30k(tmp_path)
    texts = load_multi30k(tmp_path / "task1", "val", ["en", "de"])
    assert texts.column_names == ["image_id", "captions"]
    rows = [(e["image_id"], e["text_a"], e["text_b"]) for e in triplets(texts, [("en", "de")])]
    assert rows == [(name, caption("en", n), caption("de", n)) for n, name in enumerate(FLICKR)]
    corpus = load_multi30k(tmp_path, "val", ["en", "de"], described=["en"])
    first = [(each["language"], each["text"]) for each in corpus[0]["captions"]]
    assert corpus["image_id"] == FLICKR
    assert first == [("en", caption("en", 0, kind)) for kind in range(1, 6)] + [("de", caption("de", 0))]
    alone = load_multi30k(tmp_path / "task2", "val", ["de", "en"], described=["de", "en"])
    assert [len(row) for row in alone["captions"]] == [10] * len(FLICKR)
    assert alone[0]["captions"][5] == {"language": "en", "text": caption("en", len(FLICKR) - 1, 1)}


def test_lines_that_do_not_match_are_refused(tmp_path):
    write_multi30k(tmp_path)
    lines, file = [caption("de", n).encode() for n in range(4)], tmp_path / "task1/raw/val.de.gz"
    whole = gzip.compress(b"\n".join(lines))
    for content, message in (
        (gzip.compress(b"\n".join(lines[:3])), " has 3 sentences for 4 images"),
        (gzip.compress(b"\n".join([lines[0], b"", *lines[1:]])), " line 2: the line is empty"),
        (whole[:-9], " after line"),
    ):
        file.write_bytes(content)
        with pytest.raises(CorpusError, match=rf"val\.de\.gz{message}"):
            load_multi30k(tmp_path / "task1", "val", ["en", "de"])


UC2 = {
    "http://a.com/1.jpg": {"en": "a dog runs", "de": "ein Hund rennt", "fr": "un chien court"},
    "http://a.com/2.jpg": {"en": 'the "red" house', "de": 'das "rote" Haus', "fr": None},
    "http://a.com/3.jpg": {"en": "a boat", "de": None, "fr": ""},
    "http://a.com/4.jpg": {"en": '"quoted"', "de": "zitiert", "fr": "cité"},
}


def image_id(url):
    return str(zlib.crc32(url.encode()) & 0xFFFFFFFF)


@pytest.fixture
def cc3m(tmp_path):
    write_uc2(tmp_path / "cc3m", UC2)
    return tmp_path / "cc3m"


def test_captions_come_together_by_the_name_of_the_regions(cc3m):
    for _ in range(2):  # read, and from the cache
        corpus = load_cc3m(cc3m, ["en", "de", "fr"])
        expected = {image_id(url): {k: v for k, v in captions.items() if v} for url, captions in UC2.items()}
        del expected[image_id("http://a.com/3.jpg")]  # in one language alone
        expected[image_id("http://a.com/4.jpg")]["en"] = "quoted"
        texts = {row["image_id"]: {c["language"]: c["text"] for c in row["captions"]} for row in corpus}
        assert texts == expected and corpus.column_names == ["image_id", "captions"]
    assert len(triplets(corpus, [("en", "de")])) == 3 and len(triplets(corpus, [("de", "fr")])) == 2


def test_images_are_named_by_their_address(cc3m, tmp_path):
    (tmp_path / "images").mkdir()
    options = {"images": tmp_path / "images"}
    with pytest.raises(CorpusError, match=r"line 1: the image .* does not exist"):
        load_cc3m(cc3m, ["en", "de"], **options)
    for width, url in enumerate(UC2, 1):
        PIL.Image.new("RGB", (width, 9)).save(tmp_path / "images" / image_id(url), "PNG")
    assert [row["image"].width for row in load_cc3m(cc3m, ["en", "de"], **options)] == [1, 2, 4]


def test_files_that_do_not_have_the_same_lines_are_refused(cc3m):
    file = cc3m / "train_imageId2Ann_de.tsv"
    lines = file.read_bytes().splitlines(keepends=True)
    for changed, message in (
        (lines[:-1], "at its end: expected an image"),
        (lines[1:2] + lines[1:], "line 1: is about"),
    ):
        file.write_bytes(b"".join(changed))
        with pytest.raises(CorpusError, match=rf"train_imageId2Ann_de\.tsv,? {message}"):
            load_cc3m(cc3m, ["en", "de"])
