from hashlib import blake2b
from io import BytesIO

import numpy as np
import PIL.Image
import pytest
from datasets import Dataset, Features, Image, List, Translation, Value, disable_progress_bars, enable_progress_bars

from babelens.data.corpus.corpus import CAPTIONS, corpus_overlaps
from babelens.data.corpus.loading import SkippedImage, load_captions, load_translations
from tests.support.image_sources import drawn


def image_dataset(captions, column="captions", images=None, **columns):
    images = images or [{"bytes": drawn(seed), "path": None} for seed in range(len(captions))]
    dataset = Dataset.from_dict({column: captions, **columns, "image": images})
    return dataset.cast_column("image", Image())


def caption(language, text):
    return {"language": language, "text": text}


def test_columns_come_in_their_order_and_others_follow():
    others = {"vendor": ["x", "y"], "split": ["train", "test"], "features": [[1.0], [2.0]], "image_id": [7, 8]}
    corpus = load_captions(image_dataset([{"EN": "a"}, {"EN": "b"}], **others))
    strings = {"split": Value("string"), "vendor": Value("string")}
    first = {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS, "features": List(Value("float32"))}
    assert corpus.features == Features(first | strings) and corpus.column_names == [*first, *strings]
    row = corpus[1]
    assert np.array_equal(row.pop("image"), PIL.Image.open(BytesIO(drawn(1))))
    texts = {"image_id": "8", "captions": [caption("en", "b")], "split": "test", "vendor": "y"}
    assert row == texts | {"features": [2.0]}


def test_only_rows_in_the_wanted_languages_are_kept():
    dataset = image_dataset([{"en": "a", "de": "b"}, {"en": "c"}, {"en": "d", "fr": "e"}])
    corpus = load_captions(dataset, languages=["de", "fr"])
    assert list(corpus["captions"]) == [[caption("de", "b")], [caption("fr", "e")]]
    assert list(corpus["image_id"]) == [blake2b(drawn(seed), digest_size=8).hexdigest() for seed in (0, 2)]


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_images_are_left_out_counted_and_named(streaming, caplog, monkeypatch):
    monkeypatch.setattr("babelens.data.corpus.loading._BATCH_ROWS", 2)
    images = [{"bytes": content, "path": None} for content in (drawn(0), drawn(1), drawn(2), drawn(3)[:100], drawn(4))]
    dataset = image_dataset([{"en": name} for name in "abcde"], images=images, image_id=[*"vwxyz"])
    images_skipped: list[SkippedImage] = []
    disable_progress_bars()
    try:
        corpus = load_captions(dataset, streaming=streaming, on_bad_image="skip", skipped=images_skipped)
        assert [row["image_id"] for row in corpus] == [*"vwxz"]
    finally:
        enable_progress_bars()
    [skipped] = images_skipped
    assert skipped.place.startswith("row 3") and skipped.image_id == "y"
    assert f"left out 1 with an image that cannot be read ({skipped.place}: {skipped.reason})" in caplog.text


def test_an_image_without_a_name_is_called_by_its_content():
    """The number of its row would be another one for each of several workers."""
    dataset = image_dataset([{"en": "a"}, {"en": "b"}, {"en": "c"}])
    names = [row["image_id"] for row in load_captions(dataset.to_iterable_dataset(num_shards=3))]
    assert len(set(names)) == 3
    again = load_captions(dataset.select([2, 0]).to_iterable_dataset())
    assert [row["image_id"] for row in again] == [names[2], names[0]]


def test_captions_next_to_addresses_of_images_are_read():
    rows = Dataset.from_dict({"image_url": ["https://a.b/1.jpg", "https://a.b/2.jpg"], "text_en": ["a", "b"]})
    corpus = load_captions(rows)
    assert [row["captions"][0]["text"] for row in corpus] == ["a", "b"] and len(set(corpus["image_id"])) == 2


def test_translations_of_every_form_are_read():
    rows = [{"de": "b", "en": "a"}, {"de": "d", "en": "c"}]
    columns = Dataset.from_dict({"en": ["a", "c"], "DE": ["b", "d"]})
    features = Features(translation=Translation(languages=["en", "de"]))
    for dataset in (columns, Dataset.from_dict({"translation": rows}, features)):
        for data in (dataset, dataset.to_iterable_dataset()):
            corpus = load_translations(data)
            assert [{each["language"]: each["text"] for each in row["captions"]} for row in corpus] == rows
            assert corpus.column_names == ["captions"]


def test_equal_files_and_equal_texts_of_two_corpora_are_counted(tmp_path):
    (tmp_path / "1.png").write_bytes(drawn(1))

    def corpus(images, texts):
        cells = [image if isinstance(image, dict) else {"bytes": drawn(image), "path": None} for image in images]
        return image_dataset([[caption("en", text)] for text in texts], images=cells)

    held_out = corpus([0, 1, 2, {"bytes": None, "path": "gone.png"}], ["a cat", "a  dog", "café", "a cat"])
    path = {"bytes": None, "path": str(tmp_path / "1.png")}
    training = corpus([path, 3, 0], ["a dog", "a bird", "cafe\u0301"])
    images, texts = corpus_overlaps(held_out, images={"a": training}, texts={"b": training})
    assert (images.total, images.same, texts.total, texts.same) == (4, 2, 3, 2)
    assert images.is_notable and texts.is_notable
    assert str(images) == "2 of the 4 held-out images are also in the training data"
    streams = {"a": held_out.to_iterable_dataset(), "b": held_out.remove_columns("image")}
    images, texts = corpus_overlaps(held_out, images=streams, texts={"c": training})
    assert images.same == 0 and not images.is_notable and str(images).endswith("(a, b not compared)")
    assert texts.unchecked == () and corpus_overlaps(held_out, images={}, texts={}) == []
