import torch

from babelens.processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from babelens.training.mla import rows_of_pieces
from tests.support.tiny_native import tiny_bert


def test_pieces_keep_their_embeddings() -> None:
    model, tokenizer = tiny_bert()
    texts = ["ein roter Balken", "un point bleu"]
    trimmed = trim_tokenizer(tokenizer, choose_pieces(tokenizer, count_pieces(tokenizer, texts), coverage=1.0))
    table = model.get_input_embeddings().weight.detach()
    rows = rows_of_pieces(table, trimmed, tokenizer)
    assert len(rows) == len(trimmed) < len(tokenizer)
    for text in texts:
        assert torch.equal(rows[trimmed(text)["input_ids"]], table[tokenizer(text)["input_ids"]])
