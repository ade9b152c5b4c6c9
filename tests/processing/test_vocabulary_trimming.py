import pytest
from tokenizers import Tokenizer, models
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

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
