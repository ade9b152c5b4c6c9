import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor
from transformers.tokenization_utils_base import PaddingStrategy

from babelens.utils.errors import ImageError, InputError, LanguageTagError

from .common import CAPTIONS, LANGUAGES, TEXTS, Contract, assert_equal, drawn_images


class ProcessorContract(Contract):
    """Texts with their languages and images of every kind, in one call; errors name the argument."""

    max_text_tokens = 64

    def test_languages_are_given_once_or_for_each_text(self, processor):
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
            processor(images=drawn_images(1), language="de")

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

    def test_texts_are_padded_as_transformers_defines_it(self, processor):
        texts = {"text": TEXTS, "language": LANGUAGES}
        longest = processor(**texts, return_tensors="pt")
        size = longest["attention_mask"].shape[1]
        for padding in (True, "longest", PaddingStrategy.LONGEST):
            assert_equal(dict(processor(**texts, padding=padding, return_tensors="pt")), dict(longest))
        lengths = longest["attention_mask"].sum(1).tolist()
        for padding in (False, "do_not_pad"):
            assert [len(row) for row in processor(**texts, padding=padding)["input_ids"]] == lengths
        with pytest.raises(ValueError, match="padding=True"):
            processor(**texts, padding=False, return_tensors="pt")
        for options, width in (
            ({"padding": "max_length"}, self.max_text_tokens),
            ({"padding": "max_length", "max_length": 35}, 35),
            ({"pad_to_multiple_of": 32}, -(-size // 32) * 32),
        ):
            found = processor(**texts, **options, return_tensors="pt")
            assert found["attention_mask"].shape == (len(TEXTS), width)
            assert torch.equal(found["attention_mask"].sum(1), longest["attention_mask"].sum(1))
            assert torch.equal(found["input_ids"][:, :size], longest["input_ids"])
        assert "attention_mask" not in processor(**texts, return_attention_mask=False)

    def test_texts_are_cut_only_where_they_may_be(self, processor):
        long = {"text": " ".join([CAPTIONS["de"]] * 40), "language": "de", "return_tensors": "pt"}
        whole = processor(**long, truncation=False)["attention_mask"]
        assert whole.shape[1] > self.max_text_tokens and whole.all()
        for truncation in (True, "longest_first", "only_first"):
            assert processor(**long, truncation=truncation)["attention_mask"].shape == (1, self.max_text_tokens)

    def test_keywords_in_groups_are_those_given_by_themselves(self, processor):
        drawn = drawn_images(len(TEXTS))
        sized = {"size": {"height": 40, "width": 40}, "crop_size": {"height": 24, "width": 24}}
        flat = processor(
            images=drawn, text=TEXTS, language=LANGUAGES, padding="max_length", max_length=35, return_tensors="pt",
            **sized,
        )  # fmt: skip
        assert flat["pixel_values"].shape[-2:] == (24, 24) and flat["attention_mask"].shape[1] == 35
        options = {"padding": "max_length", "max_length": 35, "language": LANGUAGES}
        grouped = processor(
            images=drawn, text=TEXTS, text_kwargs=options, images_kwargs=sized, audio_kwargs={"padding": True},
            videos_kwargs={}, common_kwargs={"return_tensors": "pt"},
        )  # fmt: skip
        assert_equal(dict(grouped), dict(flat))
        assert "language" in options  # what is given stays as it is
        common = {"padding": "max_length", "return_tensors": "pt", "do_resize": True}
        alone = processor(text=TEXTS, language=LANGUAGES, common_kwargs=common, padding=True)
        assert_equal(dict(alone), dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")))

    def test_what_is_not_known_is_ignored_with_a_warning(self, processor, caplog):
        assert_equal(
            dict(processor(text=TEXTS, language=LANGUAGES, paddding=9, return_tensors="pt")),
            dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")),
        )
        assert "does not accept 'paddding'" in caplog.text

    def test_lengths_that_no_text_has_are_refused(self, processor):
        for length in (0, -1, 10**30):
            with pytest.raises(InputError, match="max_length"):
                processor(text=TEXTS, language=LANGUAGES, max_length=length)

    def test_what_is_no_text_is_refused(self, processor):
        for text in (5, b"a", {"a": 1}, [5]):
            with pytest.raises(InputError, match="text"):
                processor(text=text, language="de")
        with pytest.raises(InputError, match=r"text\[1\] has half a surrogate pair"):
            processor(text=["a cat", "cat \ud83d"], language="en")
        for wrong in ({}, {"text": []}, {"images": []}, {"text": [None]}, {"text": [["a"]]}):
            with pytest.raises(ValueError):
                processor(**wrong, **({"language": ["de"] * len(wrong["text"])} if "text" in wrong else {}))

    def test_what_is_no_image_is_refused_with_its_place(self, processor):
        with pytest.raises(ImageError, match="no such file"):  # an address is not fetched
            processor(images="http://127.0.0.1:9/cat.png")
        arrays = np.zeros((9, 9, 3)), np.full((9, 9, 3), 300), np.zeros((9, 9, 2), np.uint8)
        for image in (5, *arrays, Image.new("RGB", (0, 5)), Image.new("RGB", (1, 101))):
            with pytest.raises(ImageError, match=r"^images\[1\]"):
                processor(images=[*drawn_images(1), image])

    def test_images_of_every_mode(self, processor, tmp_path):
        image = drawn_images(1)[0]
        for mode in ("L", "P", "CMYK", "RGBA"):
            converted = image.convert(mode)
            self.assert_same_pixels(processor, converted, converted.convert("RGB"))
        clear = Image.new("RGBA", image.size)
        self.assert_same_pixels(processor, clear, Image.new("RGB", image.size, "white"))
        turned = image.getexif()
        turned[0x0112] = 6  # orientation: the camera was held upright
        image.save(tmp_path / "turned.png", exif=turned)
        with Image.open(tmp_path / "turned.png") as opened:
            self.assert_same_pixels(processor, opened, image.transpose(Image.Transpose.ROTATE_270))

    def test_images_in_every_form(self, processor, tmp_path):
        image, clear = drawn_images(1)[0], Image.new("RGBA", (40, 40))
        image.save(tmp_path / "a.png")
        clear.save(tmp_path / "clear.png")
        for form in (
            np.asarray(image),
            torch.from_numpy(np.array(image)),
            torch.from_numpy(np.array(image).transpose(2, 0, 1)),
            np.asarray(image, np.int64),
            (tmp_path / "a.png").read_bytes(),
            tmp_path / "a.png",
            str(tmp_path / "a.png"),
        ):
            self.assert_same_pixels(processor, form, image)
        self.assert_same_pixels(processor, str(tmp_path / "clear.png"), clear)
        self.assert_same_pixels(processor, np.asarray(clear), clear)
        grey = image.convert("L")
        self.assert_same_pixels(processor, np.asarray(grey), grey)
        self.assert_same_pixels(processor, np.asarray(grey).astype(np.uint16) * 257, grey)
        with pytest.raises(ValueError, match=r"missing\.png"):
            processor(images=str(tmp_path / "missing.png"))

    @staticmethod
    def assert_same_pixels(processor: Any, one: Any, other: Any) -> None:
        pixels = [processor(images=image, return_tensors="pt")["pixel_values"] for image in (one, other)]
        assert pixels[0].shape[:2] == (1, 3)
        assert torch.equal(*pixels)

    def test_texts_and_images_go_together_or_alone_in_any_number(self, processor):
        text = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        images = processor(images=drawn_images(2), return_tensors="pt")
        assert set(images) == {"pixel_values"} and "pixel_values" not in text
        both = processor(images=drawn_images(2), text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert_equal(dict(both), {**images, **text})

    def test_inputs_stay_as_they_are(self, processor):
        images, texts, languages = drawn_images(len(TEXTS)), list(TEXTS), list(LANGUAGES)
        processor(images=images, text=texts, language=languages, return_tensors="pt")
        assert all(np.array_equal(a, b) for a, b in zip(images, drawn_images(len(TEXTS)), strict=True))
        assert (texts, languages) == (TEXTS, LANGUAGES)

    def test_saved_and_loaded_it_gives_the_same(self, processor, tmp_path):
        long = {"text": [text * 30 for text in TEXTS], "language": LANGUAGES, "return_tensors": "pt"}
        expected = dict(processor(images=drawn_images(len(TEXTS)), **long))
        processor(**long, max_length=5)  # a tokenizer saves how it was last used; a processor is not to care
        processor.save_pretrained(tmp_path)
        for loader in (type(processor), AutoProcessor):
            loaded = loader.from_pretrained(tmp_path)
            assert type(loaded) is type(processor)
            assert_equal(dict(loaded(images=drawn_images(len(TEXTS)), **long)), expected)
        for copied in (copy.deepcopy(processor), pickle.loads(pickle.dumps(processor))):
            assert_equal(dict(copied(images=drawn_images(len(TEXTS)), **long)), expected)
