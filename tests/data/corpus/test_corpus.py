"""An ordinary dataset becomes a caption corpus or a translation corpus, or is refused with the row."""

import logging
from hashlib import blake2b
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pytest
from datasets import Dataset, Features, Image, List, Translation, Value

from babelens.data.corpus.captions import CaptionRules, normalize_captions
from babelens.data.corpus.corpus import (
    CAPTIONS,
    ImageRules,
    as_caption_corpus,
    as_translation_corpus,
)
from babelens.utils.errors import CorpusError


def png(seed: int = 0) -> bytes:
    buffer = BytesIO()
    noise = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    PIL.Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()


def image_dataset(captions: list[Any], column: str = "captions", **columns: list[Any]) -> Dataset:
    images = [{"bytes": png(seed), "path": None} for seed in range(len(captions))]
    dataset = Dataset.from_dict({column: captions, **columns, "image": images})
    return dataset.cast_column("image", Image())


def named(seed: int) -> str:
    """The image_id of an image."""
    return blake2b(png(seed), digest_size=8).hexdigest()


def caption(language: str, text: str) -> dict[str, str]:
    return {"language": language, "text": text}


class TestCaptions:
    @pytest.mark.parametrize(
        "spelled",
        [
            [caption("EN", "a cat"), caption("en", "small"), caption("pt_br", "um gato")],
            {"EN": ["a cat", "small"], "pt-BR": "um gato", "de": None, "fr": []},
        ],
    )
    def test_every_form_becomes_a_list_of_language_and_text(self, spelled: object) -> None:
        normal = [caption("en", "a cat"), caption("en", "small"), caption("pt-BR", "um gato")]
        assert normalize_captions(spelled, CaptionRules()) == normal


class TestCaptionCorpus:
    def test_columns_stand_in_their_order_and_others_follow(self) -> None:
        dataset = image_dataset(
            [{"EN": "a"}, {"EN": "b"}],
            vendor=["x", "y"],
            split=["train", "test"],
            features=[[1.0], [2.0]],
            image_id=[7, 8],
        )
        corpus = as_caption_corpus(dataset)
        assert corpus.features == Features(
            image=Image(),
            image_id=Value("string"),
            captions=CAPTIONS,
            features=List(Value("float32")),
            split=Value("string"),
            vendor=Value("string"),
        )
        assert corpus.column_names == list(corpus.features)
        assert corpus[1] | {"image": None} == {
            "image": None,
            "image_id": "8",
            "captions": [caption("en", "b")],
            "features": [2.0],
            "split": "test",
            "vendor": "y",
        }
        assert np.array_equal(corpus[1]["image"], PIL.Image.open(BytesIO(png(1))))

    @pytest.mark.parametrize("column", ["caption"])
    def test_a_plain_text_column_needs_a_language(self, column: str) -> None:
        dataset = image_dataset(["eine Katze", "ein Hund"], column)
        with pytest.raises(CorpusError, match="row 0: 'eine Katze' has no language"):
            as_caption_corpus(dataset)
        corpus = as_caption_corpus(dataset, captions=CaptionRules(language="de"))
        assert corpus["captions"][1] == [caption("de", "ein Hund")]
        assert corpus.column_names == ["image", "image_id", "captions"]

    def test_only_rows_in_the_wanted_languages_are_kept(self) -> None:
        dataset = image_dataset([{"en": "a", "de": "b"}, {"en": "c"}, {"en": "d", "fr": "e"}])
        corpus = as_caption_corpus(dataset, captions=CaptionRules(languages=("de", "fr")))
        assert list(corpus["captions"]) == [[caption("de", "b")], [caption("fr", "e")]]
        assert list(corpus["image_id"]) == [named(0), named(2)]


class TestBadImages:
    @staticmethod
    def with_a_bad_one() -> Dataset:
        images = [
            {"bytes": png(0), "path": None},
            {"bytes": png(1)[:100], "path": None},
            {"bytes": png(2), "path": None},
        ]
        columns = {"image": images, "captions": [{"en": "a"}, {"en": "b"}, {"en": "c"}], "image_id": ["x", "y", "z"]}
        return Dataset.from_dict(columns).cast_column("image", Image())

    @pytest.mark.parametrize("streaming", [False, True])
    def test_bad_images_are_left_out_counted_and_named(
        self, streaming: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = self.with_a_bad_one()
        rules = ImageRules(skip=True, skipped=[])
        place = "row 1, image_id 'y'" if streaming else "row 1"
        with caplog.at_level(logging.WARNING, logger="babelens"):
            corpus = as_caption_corpus(dataset.to_iterable_dataset() if streaming else dataset, images=rules)
            assert [row["image_id"] for row in corpus] == ["x", "z"]
        [skipped] = rules.skipped
        assert (skipped.place, skipped.image_id) == (place, "y")
        assert skipped.reason.startswith("image of 100 bytes: ")
        assert f"left out 1 images: {place}: {skipped.reason}" in caplog.messages


class TestStreams:
    def test_an_image_without_a_name_is_called_by_its_content(self) -> None:
        """The number of its row would be another one for each of several workers."""
        dataset = image_dataset([{"en": "a"}, {"en": "b"}, {"en": "c"}])
        stream = as_caption_corpus(dataset.to_iterable_dataset(num_shards=3))
        names = [row["image_id"] for row in stream]
        assert len(set(names)) == 3
        again = as_caption_corpus(dataset.select([2, 0]).to_iterable_dataset())
        assert [row["image_id"] for row in again] == [names[2], names[0]]


class TestTranslationCorpus:
    NORMAL = ([caption("en", "a"), caption("de", "b")], [caption("en", "c"), caption("de", "d")])

    @pytest.mark.parametrize("streaming", [False, True])
    @pytest.mark.parametrize(
        "dataset",
        [
            Dataset.from_dict({"en": ["a", "c"], "DE": ["b", "d"]}),
            Dataset.from_dict(
                {"translation": [{"en": "a", "de": "b"}, {"en": "c", "de": "d"}]},
                Features(translation=Translation(languages=["en", "de"])),
            ),
        ],
    )
    def test_every_form_is_read(self, dataset: Dataset, streaming: bool) -> None:
        corpus = as_translation_corpus(dataset.to_iterable_dataset() if streaming else dataset)
        by_language = [sorted(row["captions"], key=lambda c: c["language"], reverse=True) for row in corpus]
        assert by_language == list(self.NORMAL)
        assert corpus.column_names == ["captions"]
