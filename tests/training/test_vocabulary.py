"""The part of a pretrained vocabulary that texts need, with its embeddings."""

import torch

from babelens.training.building import rows_of_pieces, trimmed_to
from tests.support.tiny_native import tiny_bert


def test_pieces_keep_their_embeddings() -> None:
    model, tokenizer = tiny_bert()
    texts = ["ein roter Balken", "un point bleu"]
    trimmed = trimmed_to(tokenizer, texts, 1.0)
    table = model.get_input_embeddings().weight.detach()
    rows = rows_of_pieces(table, trimmed, tokenizer)
    assert len(rows) == len(trimmed) < len(tokenizer)
    for text in texts:
        assert torch.equal(rows[trimmed(text)["input_ids"]], table[tokenizer(text)["input_ids"]])
