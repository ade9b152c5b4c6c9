import json

import pytest
import torch
from tokenizers import processors
from transformers import AutoProcessor, SiglipConfig

from babelens import MlaProcessor
from babelens.processing.processing_mla import closing_token_id
from babelens.utils.errors import InputError
from tests.contracts import LANGUAGES, TEXTS
from tests.support.tiny_dual_encoders import KINDS, bert_tokenizer, tiny_xlm_roberta


@pytest.fixture
def processor(make_mla):
    return make_mla()[1]


def test_each_row_is_cut_and_padded_by_its_vocabulary(processor):
    other = MlaProcessor(
        processor.image_processor, processor.tokenizer, bert_tokenizer(), languages=["de"], max_text_length=64
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


def test_padded_to_the_full_length_there_is_no_mask(make_mla):
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
    assert torch.equal(found["input_ids"][:, : unpadded["input_ids"].shape[1]], unpadded["input_ids"])


def test_the_native_model_determines_length_and_padding(make_mural):
    processor = make_mural()[1]
    clip = MlaProcessor.for_native(make_mural()[0].config, processor, processor.tokenizer, languages=["de"])
    assert (clip.max_text_length, clip.pad_to_max_length) == (64, False)
    siglip = MlaProcessor.for_native(SiglipConfig(), processor, processor.tokenizer)
    assert (siglip.max_text_length, siglip.pad_to_max_length) == (64, True)


def test_xlm_robertas_texts_end_with_their_own_token(make_mural):
    """They are cut at the positions that the native model has: XLM-R's towers count from 2."""
    _, tokenizer = tiny_xlm_roberta()
    native, processor = KINDS["altclip"]()
    assert closing_token_id(tokenizer) == tokenizer.eos_token_id == 2
    made = MlaProcessor.for_native(native.config, processor, tokenizer, languages=["de"])
    assert made.max_text_length == native.config.text_config.max_position_embeddings - 2 == 40
    long = made(text=["rot " * 100, "a"], language=["de", "en"], return_tensors="pt")
    assert long["input_ids"].shape == (2, 40) and long["input_ids"][0, [0, -1]].tolist() == [0, 2]
    assert set(long["input_ids"][1, 3:].tolist()) == {1}
    with torch.no_grad():
        native.get_text_features(long["input_ids"], long["attention_mask"])  # all positions are there


def test_texts_are_normalized_where_the_folder_states_it(tmp_path):
    """Only texts in acquired languages; a folder that states nothing reads them unchanged."""
    native, native_processor = KINDS["clip"]()
    tokenizer = tiny_xlm_roberta()[1]
    processor = MlaProcessor.for_native(native.config, native_processor, tokenizer, languages=["uk"])
    spellings = ["rot blau", "ro\u00adt bl\u2060au"]
    rows = processor(text=spellings, language="uk")["input_ids"]
    assert rows[0] == rows[1]
    assert (
        processor(text=spellings[1:], language="en")["input_ids"]
        == native_processor.tokenizer(spellings[1:])["input_ids"]
    )
    processor.save_pretrained(tmp_path)
    assert AutoProcessor.from_pretrained(tmp_path)(text=spellings, language="uk")["input_ids"] == rows
    file = tmp_path / "processor_config.json"
    settings = json.loads(file.read_text())
    assert settings.pop("normalization") == 1
    file.write_text(json.dumps(settings))
    older = AutoProcessor.from_pretrained(tmp_path)(text=spellings, language="uk")["input_ids"]
    assert older[0] != older[1]


def test_pooling_the_first_state_needs_a_token_at_the_beginning():
    tokenizer = KINDS["siglip2"]()[1].tokenizer  # it ends texts with <eos>, and begins them with nothing
    for kind, works in {"clip": True, "align": False, "altclip": False}.items():
        native, processor = KINDS[kind]()
        if works:
            MlaProcessor.for_native(native.config, processor, tokenizer)
            continue
        with pytest.raises(InputError, match="must begin every text with its cls_token or bos_token"):
            MlaProcessor.for_native(native.config, processor, tokenizer)


def test_a_vocabulary_without_sep_at_the_end_is_refused(processor):
    for template in ("$A", "[SEP] $A [CLS]"):
        tokenizer = bert_tokenizer()
        special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
        ending = processors.TemplateProcessing(single=template, special_tokens=special)
        tokenizer.backend_tokenizer.post_processor = ending
        with pytest.raises(InputError, match="must end every text"):
            MlaProcessor(processor.image_processor, processor.tokenizer, tokenizer)
