import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from babelens.processing.processing_rc3 import Rc3Processor, square_image_processor
from babelens.processing.tokenizer_training import train_bpe
from babelens.utils.errors import InputError, LanguageTagError
from tests.contracts import LANGUAGES, TEXTS, ProcessorContract, assert_equal, drawn_images
from tests.support.tiny_checkpoints import tiny_mbart

SETTINGS = {"image_processor": square_image_processor(32), "region_size": 4, "max_regions": 3}


@pytest.fixture(scope="session")
def make_rc3_processor():
    tokenizer = train_bpe(TEXTS, 400, min_frequency=1)
    return lambda: (None, Rc3Processor.new(tokenizer, LANGUAGES, **SETTINGS))


class TestRc3Processor(ProcessorContract):
    factory = "make_rc3_processor"
    max_text_tokens = 80

    def test_texts_and_images_go_together_or_alone_in_any_number(self, processor):
        text = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        images = processor(images=drawn_images(len(TEXTS)), return_tensors="pt")
        assert set(images) == {"pixel_values"} and set(text) == {"input_ids", "attention_mask"}
        both = processor(images=drawn_images(len(TEXTS)), text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert_equal(dict(both), {**images, **text})
        with pytest.raises(ValueError, match="6 text, 2 images"):
            processor(images=drawn_images(2), text=TEXTS, language=LANGUAGES)


@pytest.fixture
def processor(make_rc3_processor) -> Rc3Processor:
    return make_rc3_processor()[1]


def regions(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def test_a_text_begins_with_bos_and_ends_in_its_own_language(processor):
    found = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
    for text, language, ids, mask in zip(TEXTS, LANGUAGES, found["input_ids"], found["attention_mask"], strict=True):
        words = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        row = [processor.tokenizer.bos_token_id, *words, processor.language_token_id(language)]
        assert ids[: len(row)].tolist() == row and mask.tolist() == [1] * len(row) + [0] * (len(ids) - len(row))
        assert (ids[len(row) :] == processor.tokenizer.pad_token_id).all()


def test_what_is_cut_keeps_both_ends(processor):
    for length in (7, 3):
        ids = processor(text=TEXTS[1] * 20, language="de", text_target=TEXTS[0] * 40, target_language="en",
                        max_length=length, return_tensors="pt")  # fmt: skip
        assert ids["input_ids"].shape == ids["labels"].shape == ids["decoder_input_ids"].shape == (1, length)
        assert ids["input_ids"][0, [0, -1]].tolist() == [0, processor.language_token_id("de")]
        assert ids["decoder_input_ids"][0, 0] == processor.language_token_id("en")
        assert ids["labels"][0, -1] == processor.tokenizer.eos_token_id
        assert torch.equal(ids["labels"][0, :-1], ids["decoder_input_ids"][0, 1:])


def test_targets_are_shifted_by_the_language(processor):
    found = processor(text_target=TEXTS[:2], target_language=["en", "de"])
    rows = [processor.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS[:2]]
    short, missing = rows[0], len(rows[1]) - len(rows[0])
    assert found["decoder_input_ids"] == [
        [processor.language_token_id("en"), *short, *[1] * missing],
        [processor.language_token_id("de"), *rows[1]],
    ]
    assert found["decoder_attention_mask"] == [[1] * (1 + len(short)) + [0] * missing, [1] * (1 + len(rows[1]))]
    assert found["labels"] == [[*short, 2, *[-100] * missing], [*rows[1], 2]]
    assert set(found) < set(processor.model_input_names)


def test_a_text_without_a_known_language_is_refused(processor):
    with pytest.raises(InputError, match="text= was given without language="):
        processor(text="a red car")
    with pytest.raises(LanguageTagError, match="'uk'"):
        processor(text=TEXTS[:2], language=["de", "uk"])
    with pytest.raises(ValueError, match="target_language= was given without text_target="):
        processor(text="a red car", language="en", target_language="de")
    with pytest.raises(ValueError, match="1 text, 2 text_target"):
        processor(text="a", language="en", text_target=["b", "c"], target_language="de")


def test_regions_are_padded_to_the_longest(processor):
    given = [regions(2), None, torch.from_numpy(regions(3, 1)).double()]
    found = processor(text=TEXTS[:3], language=LANGUAGES[:3], regions=given, return_tensors="pt")
    assert found["region_features"].shape == (3, 3, 4) and found["region_features"].dtype == torch.float32
    assert found["region_mask"].tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert torch.equal(found["region_features"][0, :2], torch.from_numpy(given[0]))
    assert torch.equal(found["region_features"][2], given[2].float())
    assert not found["region_features"][~found["region_mask"]].any()
    alone = processor(regions=given[0], return_tensors="pt")
    assert torch.equal(alone["region_features"][0], found["region_features"][0, :2])
    stacked = processor(regions=np.stack([given[0]] * 2), return_tensors="pt")
    assert stacked["region_features"].shape == (2, 2, 4) and stacked["region_mask"].all()


def test_rows_have_one_form_both_or_none(processor):
    drawn = drawn_images(2)
    texts = {"text": TEXTS[:4], "language": LANGUAGES[:4], "return_tensors": "pt"}
    found = processor(images=[drawn[0], None, drawn[1], None], regions=[None, regions(1), regions(3), None], **texts)
    assert found["pixel_mask"].tolist() == [True, False, True, False]
    assert found["region_mask"].any(-1).tolist() == [False, True, True, False]
    assert torch.equal(found["pixel_values"][[0, 2]], processor(images=drawn, return_tensors="pt")["pixel_values"])
    assert not found["pixel_values"][[1, 3]].any()
    assert set(processor(images=[None] * 4, regions=[None] * 4, **texts)) == {"input_ids", "attention_mask"}
    assert set(found) < set(processor.model_input_names)


def test_two_images_of_one_text(processor):
    one, two = drawn_images(2)
    found = processor(
        images=[(one, two), None, (None, one)],
        regions=[(regions(1), regions(2)), (None, regions(3)), None],
        text=TEXTS[:3],
        language="en",
        return_tensors="pt",
    )
    assert found["pixel_values"].shape == (3, 2, 3, 32, 32)
    assert found["pixel_mask"].tolist() == [[True, True], [False, False], [False, True]]
    alone = processor(images=[one, two], return_tensors="pt")["pixel_values"]
    assert torch.equal(found["pixel_values"][0], alone) and torch.equal(found["pixel_values"][2, 1], alone[0])
    assert found["region_features"].shape == (3, 2, 3, 4)
    assert found["region_mask"].sum(-1).tolist() == [[1, 2], [0, 3], [0, 0]]
    assert torch.equal(found["region_features"][1, 1], torch.from_numpy(regions(3)))


def test_regions_that_cannot_be_used_are_refused(processor):
    for wrong in (regions(0), np.zeros((2, 5)), np.full((1, 4), np.nan)):
        with pytest.raises(InputError, match="image 1"):
            processor(regions=[regions(1), wrong])


def test_mbarts_tokenizer_keeps_its_numbers():
    """Pieces, language codes, the mask."""
    _, mbart = tiny_mbart()
    size, before = len(mbart), mbart("Punkt in rot")["input_ids"]
    processor = Rc3Processor.from_mbart_tokenizer(mbart, ["en", "de", "zh-CN", "he"], **SETTINGS)
    assert processor.language_tokens == ["en_XX", "de_DE", "zh_CN", "he_IL"]
    assert processor.languages == ["en", "de", "zh-CN", "he"]
    ids = processor(text=["Punkt in rot"], language="de", return_tensors="pt")["input_ids"][0].tolist()
    assert ids == [0, *before[1:-1], mbart.convert_tokens_to_ids("de_DE")]
    fields = processor.config_fields()
    assert (fields["vocab_size"], fields["cls_token_id"], fields["image_separator_token_id"]) == (
        size + 2, size, size + 1)  # fmt: skip
    assert fields["mask_token_id"] == size - 1 == mbart.mask_token_id
    assert processor.batch_decode([ids]) == ["Punkt in rot"]
    with pytest.raises(LanguageTagError, match="mBART has no code for 'zh-Hant'"):
        Rc3Processor.from_mbart_tokenizer(mbart, ["de", "zh-Hant"])
    assert len(mbart) == size and mbart("Punkt in rot")["input_ids"] == before  # it is not changed


def test_tokenizers_that_cannot_serve_are_refused(processor):
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", pad_token="<pad>")
    with pytest.raises(InputError, match="mask_token"):
        Rc3Processor.new(bare, ["en"])
    with pytest.raises(InputError, match=r"has no token \[CLS\]"):
        Rc3Processor(processor.image_processor, train_bpe(TEXTS, 400), ["en"], ["<unk>"])
    with pytest.raises(InputError, match="needs a token of its own"):
        Rc3Processor(processor.image_processor, processor.tokenizer, ["en", "de"], ["[en]"])
