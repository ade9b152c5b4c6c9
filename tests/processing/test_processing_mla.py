"""MLA's processor: the contract, two vocabularies in one batch, and tokenizers that cannot serve."""

import pytest
import torch
from contracts import LANGUAGES, TEXTS, ProcessorContract, assert_equal
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoProcessor, BertTokenizer, PreTrainedTokenizerFast, SiglipConfig

from babelens import MlaProcessor
from babelens.configuration.errors import UnknownLanguageError, VocabularyError


class TestMlaProcessor(ProcessorContract):
    factory = "make_mla"


class TestMlaOnMuralProcessor(ProcessorContract):
    factory = "make_mla_on_mural"


@pytest.fixture
def processor(make_mla):
    return make_mla()[1]


def bert_tokenizer(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ein", "rotes", "auto"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words))
    return BertTokenizer(str(folder / "vocab.txt"))


# ---- Two vocabularies ----


def test_each_row_is_cut_by_its_languages_vocabulary_and_padded_with_its_padding(processor, tmp_path):
    other = MlaProcessor(
        processor.image_processor,
        processor.tokenizer,
        bert_tokenizer(tmp_path),
        languages=["de"],
        max_text_length=64,
    )
    other.tokenizer.pad_token = "[MASK]"  # unlike the other vocabulary's
    texts = ["a red car", "ein rotes auto", "a", "rotes"]
    found = other(text=texts, language=["en", "de", "en", "de"], return_tensors="pt")
    assert found["language_ids"].tolist() == [0, 1, 0, 1]
    native, foreign = other.tokenizer, other.multilingual_tokenizer
    assert native.pad_token_id != foreign.pad_token_id
    for row, (text, tokenizer) in enumerate(zip(texts, [native, foreign] * 2, strict=True)):
        expected = tokenizer(text)["input_ids"]
        length = len(expected)
        assert found["input_ids"][row, :length].tolist() == expected
        assert set(found["input_ids"][row, length:].tolist()) <= {tokenizer.pad_token_id}
        assert found["attention_mask"][row].tolist() == [1] * length + [0] * (found["input_ids"].shape[1] - length)


def test_language_ids_count_in_the_order_of_acquisition(processor):
    found = processor(text=TEXTS, language=LANGUAGES)
    assert found["language_ids"] == [processor.languages.index(tag) + 1 if tag != "en" else 0 for tag in LANGUAGES]


def test_what_is_cut_still_ends_as_its_vocabulary_ends_texts(processor):
    long = [text * 100 for text in TEXTS]
    found = processor(text=long, language=LANGUAGES, return_tensors="pt")
    assert found["input_ids"].shape == (len(TEXTS), 64)
    for row, language in enumerate(LANGUAGES):
        tokenizer = processor.tokenizer if language == "en" else processor.multilingual_tokenizer
        assert found["input_ids"][row, -1] == tokenizer.sep_token_id
        assert (found["input_ids"][row] == tokenizer.sep_token_id).sum() == 1


def test_padded_to_the_full_length_there_is_no_mask(make_mla):
    """As SigLIP was trained."""
    plain = make_mla()[1]
    padded = MlaProcessor(
        plain.image_processor,
        plain.tokenizer,
        plain.multilingual_tokenizer,
        languages=plain.languages,
        max_text_length=24,
        pad_to_max_length=True,
    )
    found = padded(text=TEXTS, language=LANGUAGES, return_tensors="pt")
    assert set(found) == {"input_ids", "language_ids"} and found["input_ids"].shape == (len(TEXTS), 24)
    unpadded = plain(text=TEXTS, language=LANGUAGES, return_tensors="pt")
    length = unpadded["input_ids"].shape[1]
    assert torch.equal(found["input_ids"][:, :length], unpadded["input_ids"])


def test_the_native_model_says_how_long_texts_are_and_how_they_are_padded(make_mural):
    processor = make_mural()[1]
    clip = MlaProcessor.for_native(make_mural()[0].config, processor, processor.tokenizer, languages=["de"])
    assert (clip.max_text_length, clip.pad_to_max_length) == (64, False)
    siglip = MlaProcessor.for_native(SiglipConfig(), processor, processor.tokenizer)
    assert (siglip.max_text_length, siglip.pad_to_max_length) == (64, True)


# ---- Refusals ----


def test_a_language_that_was_not_acquired_is_refused_with_those_that_were(processor):
    with pytest.raises(UnknownLanguageError, match="has not learned 'uk'; its languages are en, de, fr, th, zh, ar"):
        processor(text=TEXTS[:2], language=["de", "uk"])


def test_a_text_without_its_language_is_refused(processor):
    with pytest.raises(ValueError, match="text= was given without language="):
        processor(text="a red car")


def with_ending(template: str | None, **special: str) -> PreTrainedTokenizerFast:
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if template is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **special)


@pytest.mark.parametrize(
    ("tokenizer", "complaint"),
    [
        (with_ending("[CLS] $A [SEP]", pad_token="[PAD]"), "sep_token is None"),
        (with_ending(None, pad_token="[PAD]", sep_token="[SEP]"), r"'a' becomes \['a'\]"),
        (with_ending("[SEP] $A [CLS]", pad_token="[PAD]", sep_token="[SEP]"), r"\['\[SEP\]', 'a', '\[CLS\]'\]"),
        (with_ending("[CLS] $A [SEP]", sep_token="[SEP]"), "no padding token"),
    ],
    ids=["no [SEP]", "no end", "[SEP] elsewhere", "no padding"],
)
def test_a_vocabulary_that_does_not_end_texts_with_sep_is_refused(processor, tokenizer, complaint):
    with pytest.raises(VocabularyError, match=complaint):
        MlaProcessor(processor.image_processor, processor.tokenizer, tokenizer)


# ---- Files ----


def test_languages_and_lengths_are_saved(processor, tmp_path):
    processor.languages.append("uk")
    changed = MlaProcessor(
        processor.image_processor,
        processor.tokenizer,
        bert_tokenizer(tmp_path / "bert"),
        native_language="en",
        languages=processor.languages,
        max_text_length=13,
        pad_to_max_length=True,
    )
    changed.save_pretrained(tmp_path / "saved")
    loaded = AutoProcessor.from_pretrained(tmp_path / "saved")
    assert loaded.languages == ["de", "fr", "th", "zh", "ar", "uk"]
    assert (loaded.native_language, loaded.max_text_length, loaded.pad_to_max_length) == ("en", 13, True)
    texts = {"text": ["ein rotes auto", "a red car"], "language": ["uk", "en"], "return_tensors": "pt"}
    assert_equal(dict(loaded(**texts)), dict(changed(**texts)))
