import pytest
import torch

from babelens.modeling.embedding_trimming import named_token_ids, trim_embeddings
from babelens.processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from tests.support.tiny_checkpoints import CHECKPOINTS, KEPT_TEXTS, tiny_mbart


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
