"""What every processor keeps."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoProcessor,
)

from babelens.configuration.languages import LanguageTagError

from .common import (
    CAPTIONS,
    LANGUAGES,
    TEXTS,
    Contract,
    assert_equal,
    pictures,
)


class ProcessorContract(Contract):
    """Texts with their languages and pictures of every kind, in one call; what is wrong is refused by name."""

    max_text_tokens = 64

    # ---- Texts ----

    def test_languages_may_be_given_once_or_for_each_text_in_any_case(self, processor):
        one = processor(text=TEXTS, language="de", return_tensors="pt")
        assert_equal(dict(processor(text=TEXTS, language="DE", return_tensors="pt")), dict(one))
        assert_equal(dict(processor(text=TEXTS, language=["de"] * len(TEXTS), return_tensors="pt")), dict(one))
        several = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        upper = [tag.upper() for tag in LANGUAGES]
        assert_equal(dict(processor(text=TEXTS, language=upper, return_tensors="pt")), dict(several))

    def test_wrong_languages_are_refused(self, processor):
        with pytest.raises(LanguageTagError, match="'klingonish'"):
            processor(text="nuqneH", language="klingonish")
        with pytest.raises(LanguageTagError, match="'xx'"):
            processor(text=TEXTS[:2], language=["de", "xx"])
        with pytest.raises(ValueError, match="2 texts came with 3 language tags"):
            processor(text=TEXTS[:2], language=["de", "en", "fr"])
        with pytest.raises(ValueError, match="without text"):
            processor(images=pictures(1), language="de")

    def test_one_text_is_a_batch_of_one_and_padding_is_masked(self, processor):
        together = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert together["input_ids"].shape == together["attention_mask"].shape
        for i, (text, language) in enumerate(zip(TEXTS, LANGUAGES, strict=True)):
            alone = processor(text=text, language=language, return_tensors="pt")
            length = together["attention_mask"][i].sum()
            assert alone["input_ids"].shape == (1, length)
            assert torch.equal(together["input_ids"][i, :length], alone["input_ids"][0])

    def test_long_texts_are_cut(self, processor):
        for language, text in CAPTIONS.items():
            tokens = processor(text=[text * 100, text], language=language, return_tensors="pt")
            assert tokens["input_ids"].shape == (2, self.max_text_tokens)
            shorter = processor(text=text * 100, language=language, max_length=9, return_tensors="pt")
            assert shorter["input_ids"].shape == (1, 9)
            assert shorter["input_ids"][0, -1] == tokens["input_ids"][0, -1]  # the end is marked all the same

    # ---- Pictures ----

    def test_pictures_of_every_mode(self, processor, tmp_path):
        picture = pictures(1)[0]
        for mode in ("L", "P", "CMYK", "RGBA"):
            converted = picture.convert(mode)
            self.assert_same_pixels(processor, converted, converted.convert("RGB"))
        clear = Image.new("RGBA", picture.size)
        self.assert_same_pixels(processor, clear, Image.new("RGB", picture.size, "white"))
        turned = picture.getexif()
        turned[0x0112] = 6  # orientation: the camera was held upright
        picture.save(tmp_path / "turned.png", exif=turned)
        with Image.open(tmp_path / "turned.png") as opened:
            self.assert_same_pixels(processor, opened, picture.transpose(Image.Transpose.ROTATE_270))

    def test_pictures_in_every_form(self, processor, tmp_path):
        picture, clear = pictures(1)[0], Image.new("RGBA", (40, 40))
        picture.save(tmp_path / "a.png")
        clear.save(tmp_path / "clear.png")
        for form in (
            np.asarray(picture),
            torch.from_numpy(np.array(picture)),
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
        ):
            self.assert_same_pixels(processor, form, picture)
        self.assert_same_pixels(processor, str(tmp_path / "clear.png"), clear)
        with pytest.raises(ValueError, match=r"missing\.png"):
            processor(images=str(tmp_path / "missing.png"))

    @staticmethod
    def assert_same_pixels(processor: Any, one: Any, other: Any) -> None:
        pixels = [processor(images=image, return_tensors="pt")["pixel_values"] for image in (one, other)]
        assert pixels[0].shape[:2] == (1, 3)
        assert torch.equal(*pixels)

    # ---- Both ----

    def test_texts_and_pictures_go_together_or_alone_in_any_number(self, processor):
        text = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        images = processor(images=pictures(2), return_tensors="pt")
        assert set(images) == {"pixel_values"} and "pixel_values" not in text
        both = processor(images=pictures(2), text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert_equal(dict(both), {**images, **text})

    def test_inputs_stay_as_they_are(self, processor):
        images, texts, languages = pictures(len(TEXTS)), list(TEXTS), list(LANGUAGES)
        processor(images=images, text=texts, language=languages, return_tensors="pt")
        assert all(np.array_equal(a, b) for a, b in zip(images, pictures(len(TEXTS)), strict=True))
        assert (texts, languages) == (TEXTS, LANGUAGES)

    @pytest.mark.parametrize("wrong", [{}, {"text": []}, {"images": []}, {"text": [None]}, {"text": [["a"]]}])
    def test_nothing_and_what_is_no_text_are_refused(self, processor, wrong):
        with pytest.raises(ValueError):
            processor(**wrong, **({"language": ["de"] * len(wrong["text"])} if "text" in wrong else {}))

    def test_saved_and_loaded_it_gives_the_same(self, processor, tmp_path):
        long = {"text": [text * 30 for text in TEXTS], "language": LANGUAGES, "return_tensors": "pt"}
        expected = dict(processor(images=pictures(len(TEXTS)), **long))
        processor(**long, max_length=5)  # a tokenizer saves how it was last used; a processor is not to care
        processor.save_pretrained(tmp_path)
        for loader in (type(processor), AutoProcessor):
            loaded = loader.from_pretrained(tmp_path)
            assert type(loaded) is type(processor)
            assert_equal(dict(loaded(images=pictures(len(TEXTS)), **long)), expected)
        for copied in (copy.deepcopy(processor), pickle.loads(pickle.dumps(processor))):
            assert_equal(dict(copied(images=pictures(len(TEXTS)), **long)), expected)
