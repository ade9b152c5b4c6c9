import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from babelens.processing.processing_rc3 import Rc3Processor, square_image_processor

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PIECES = {  # each text as pieces, with the word that each belongs to
    "en": ([("▁a", 0), ("▁sky", 1), ("sc", 1), ("raper", 1), (",", 1), ("▁two", 2)]),
    "de": ([("▁", 0), ("Eichhörnchen", 0), ("▁klettert", 1)]),
    "zh": ([("▁", 0), ("一只", 0), ("灰狗", 1), ("。", 2), ("iPhone", 3), ("s", 3)]),
    "ja": ([("▁赤い", 0), ("車", 1), ("が", 2), ("▁ビル", 3), ("ー", 4)]),
    "th": ([("▁สุ", 0), ("นัข", 1), ("ิ", 1), ("สี", 2)]),
    "ko": ([("▁빨간", 0), ("▁자동차", 1), ("가", 1)]),
    "yo": ([("▁aj", 0), ("á", 0), ("<0xE2>", 0), ("<0x98>", 0), ("▁", 1), ("<0xE2>", 1), ("<unk>", 1)]),
}


@pytest.fixture(scope="module")
def processor() -> Rc3Processor:
    pieces = [*SPECIAL, *dict.fromkeys(piece for row in PIECES.values() for piece, _ in row if piece not in SPECIAL)]
    backend = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **dict(zip(names, SPECIAL, strict=True)))
    return Rc3Processor.new(tokenizer, list(PIECES), square_image_processor(32))


def rows(processor, texts: dict[str, list[tuple[str, int]]]) -> tuple[torch.Tensor, list[list[int]]]:
    length = 2 + max(map(len, texts.values()))
    ids, words = [], []
    for language, pieces in texts.items():
        tokens = processor.tokenizer.convert_tokens_to_ids([piece for piece, _ in pieces])
        padding = length - 2 - len(pieces)
        ids.append([0, *tokens, processor.language_token_id(language), *[1] * padding])
        words.append([-1, *(word for _, word in pieces), -1, *[-1] * padding])
    return torch.tensor(ids), words


def test_words_of_every_script(processor):
    ids, words = rows(processor, PIECES)
    assert processor._masking.words(ids).tolist() == words


def test_every_piece_of_a_chosen_word_is_masked_and_no_other(processor):
    ids, words = rows(processor, PIECES)
    words = torch.tensor(words)
    before = ids.clone()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        masked, labels = processor.mask_words({"input_ids": ids}, 0.5, generator)
        chosen = masked == processor.tokenizer.mask_token_id
        assert torch.equal(masked[~chosen], ids[~chosen]) and torch.equal(labels[chosen], ids[chosen])
        assert (labels[~chosen] == -100).all() and not chosen[words == -1].any()
        for row in range(len(ids)):
            for word in range(words[row].max() + 1):
                of_word = chosen[row, words[row] == word]
                assert of_word.all() or not of_word.any()
    assert torch.equal(ids, before)


def test_never_all_words_of_a_text_are_masked(processor):
    texts = PIECES | {"en": [("▁sky", 0), ("sc", 0)]}  # the first is of one word
    ids, words = rows(processor, texts)
    words = torch.tensor(words)
    generator = torch.Generator().manual_seed(0)
    spared = set()
    for _ in range(40):
        masked, _ = processor.mask_words({"input_ids": ids}, 1.0, generator)
        left = masked != processor.tokenizer.mask_token_id
        for row in range(len(ids)):
            kept = set(words[row, left[row] & (words[row] >= 0)].tolist())
            assert len(kept) == 1
            spared |= {(row, word) for word in kept}
        assert left[0].all()
    assert {word for row, word in spared if row == 2} == {0, 1, 2, 3}  # any may be the one that is left


def test_a_text_without_words_stays_as_it_is(processor):
    for pieces in ([], [("<mask>", -1), ("<mask>", -1)]):
        ids, _ = rows(processor, {"en": pieces})
        assert torch.equal(processor.mask_words({"input_ids": ids}, 1.0)[0], ids)
