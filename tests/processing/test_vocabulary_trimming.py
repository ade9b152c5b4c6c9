import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from babelens.modeling.embedding_trimming import named_token_ids, trim_embeddings
from babelens.processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from babelens.utils.errors import InputError
from tests.support.tiny_checkpoints import CHECKPOINTS, KEPT_TEXTS, tiny_mbart, tiny_mbert


@pytest.fixture(params=CHECKPOINTS)
def tokenizer(request):
    return CHECKPOINTS[request.param]()[1]


def cut(tokenizer, texts, coverage=1.0):
    kept = choose_pieces(tokenizer, count_pieces(tokenizer, texts), coverage=coverage)
    return kept, trim_tokenizer(tokenizer, kept)


def test_texts_are_cut_as_before(tokenizer):
    kept, trimmed = cut(tokenizer, KEPT_TEXTS)
    assert len(trimmed) == len(kept) < len(tokenizer)
    old, new = tokenizer(KEPT_TEXTS)["input_ids"], trimmed(KEPT_TEXTS)["input_ids"]
    assert [[kept[number] for number in row] for row in new] == old
    pair = trimmed(KEPT_TEXTS[0], KEPT_TEXTS[1])["input_ids"]
    assert [kept[number] for number in pair] == tokenizer(KEPT_TEXTS[0], KEPT_TEXTS[1])["input_ids"]


def test_every_language_of_mbart_is_still_forced_around_texts():
    tokenizer = tiny_mbart()[1]
    kept, trimmed = cut(tokenizer, KEPT_TEXTS)
    for code in ("de_DE", "sl_SI"):
        tokenizer.src_lang = trimmed.src_lang = code
        assert kept[trimmed.lang_code_to_id[code]] == tokenizer.lang_code_to_id[code]
        assert [kept[n] for n in trimmed(KEPT_TEXTS[0])["input_ids"]] == tokenizer(KEPT_TEXTS[0])["input_ids"]


def test_rare_pieces_are_spelled_with_shorter_ones(tokenizer):
    texts = KEPT_TEXTS * 20 + ["zauberhaft great sea"]  # long pieces are rare: the vocabulary has few of them here
    counts = count_pieces(tokenizer, texts)
    kept, trimmed = cut(tokenizer, texts, coverage=0.5)
    assert 0.5 <= counts[kept].sum() / counts.sum() < 1
    assert len(kept) < len(cut(tokenizer, texts)[0])
    split = [(tokenizer(text)["input_ids"], trimmed(text)["input_ids"]) for text in texts]
    changed = [(before, after) for before, after in split if before != [kept[piece] for piece in after]]
    assert changed
    for before, after in changed:
        assert len(after) > len(before)
        assert after.count(trimmed.unk_token_id) == before.count(tokenizer.unk_token_id)
        assert trimmed.decode(after) == tokenizer.decode(before)


def test_what_cannot_be_trimmed():
    tokenizer = tiny_mbert()[1]
    with pytest.raises(InputError, match="no text"):
        count_pieces(tokenizer, [])
    with pytest.raises(InputError, match="names token 100000"):
        choose_pieces(tokenizer, count_pieces(tokenizer, KEPT_TEXTS), always=[100_000])
    with pytest.raises(InputError, match="ByT5Tokenizer is not a fast tokenizer"):
        count_pieces(ByT5Tokenizer(), KEPT_TEXTS)
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, "<unk>")))
    with pytest.raises(InputError, match="WordLevel cannot be trimmed"):
        count_pieces(words, KEPT_TEXTS)


@pytest.fixture(params=["mbart", "xlm_roberta"])
def checkpoint(request):
    return trimmed(*CHECKPOINTS[request.param]())


def trimmed(model, tokenizer):
    generation = model.generation_config if model.can_generate() else None
    named = named_token_ids(model.config, generation)
    kept = choose_pieces(tokenizer, count_pieces(tokenizer, KEPT_TEXTS), coverage=1.0, always=named)
    return (model, tokenizer), (trim_embeddings(model, kept), trim_tokenizer(tokenizer, kept)), kept


def run(model, tokenizer):
    inputs = tokenizer(KEPT_TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


def test_states_are_equal_and_logits_those_of_kept_ids(checkpoint):
    old, new, kept = checkpoint
    before, after = run(*old), run(*new)
    states = "encoder_hidden_states" if "encoder_hidden_states" in before else "hidden_states"
    for expected, actual in zip(before[states], after[states], strict=True):
        assert torch.equal(actual, expected)
    # Equal up to the order in which a smaller matrix is multiplied.
    torch.testing.assert_close(after.logits, before.logits[..., kept], rtol=0, atol=1e-5)
    assert after.logits.shape[-1] == len(kept) < before.logits.shape[-1]


def test_ids_in_settings_are_renumbered():
    (old, old_tokenizer), (new, tokenizer), kept = trimmed(*tiny_mbart())
    before, after = old.generation_config, new.generation_config
    german, english = (tokenizer.lang_code_to_id[code] for code in ("de_DE", "en_XX"))
    assert (german, english) != tuple(old_tokenizer.lang_code_to_id[code] for code in ("de_DE", "en_XX"))
    assert (after.bos_token_id, after.pad_token_id, after.eos_token_id) == (0, 1, [2, tokenizer.mask_token_id])
    assert (after.decoder_start_token_id, after.forced_bos_token_id) == (german, english)
    assert [kept[number] for number in after.suppress_tokens] == before.suppress_tokens
    assert [kept[number] for number in after.begin_suppress_tokens] == before.begin_suppress_tokens
    assert [[kept[number] for number in word] for word in after.bad_words_ids] == before.bad_words_ids
    assert after.sequence_bias is None
    assert after.lang_code_to_id == tokenizer.lang_code_to_id
    assert after.max_new_tokens == before.max_new_tokens
    assert new.config.task_specific_params == {"translation_de_to_en": {"decoder_start_token_id": english}}
    assert (new.config.pad_token_id, new.config.eos_token_id, new.config.forced_eos_token_id) == (1, 2, 2)
