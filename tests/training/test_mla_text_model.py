import torch
from transformers import BertConfig

from babelens.processing.tokenizer_training import train_wordpiece
from babelens.processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from babelens.trainers.arguments import PrecisionTrainingArguments
from babelens.training.mla import rows_of_pieces, train_masked_language
from tests.support.tiny_native import tiny_bert
from tests.support.tiny_training import shapes_texts

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_a_bert_learns_to_guess_and_comes_without_its_head(tmp_path, capsys):
    tokenizer = train_wordpiece(shapes_texts(), 200, min_frequency=1)
    settings = {"max_steps": 60, "learning_rate": 1e-2, "per_device_train_batch_size": 16, "logging_steps": 1}
    settings |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    args = PrecisionTrainingArguments(str(tmp_path), **settings)
    bert = train_masked_language(BertConfig(vocab_size=len(tokenizer), **SIZES), tokenizer, shapes_texts(), args)
    losses = [
        float(line.split("'loss': '")[1].split("'")[0])
        for line in capsys.readouterr().out.splitlines()
        if "'loss'" in line
    ]
    assert len(losses) == 60 and sum(losses[-10:]) < 0.6 * sum(losses[:10])
    assert type(bert).__name__ == "BertModel" and not any("pooler" in name for name in bert.state_dict())


def test_pieces_keep_their_embeddings():
    model, tokenizer = tiny_bert()
    texts = ["ein roter Balken", "un point bleu"]
    trimmed = trim_tokenizer(tokenizer, choose_pieces(tokenizer, count_pieces(tokenizer, texts), coverage=1.0))
    table = model.get_input_embeddings().weight.detach()
    rows = rows_of_pieces(table, trimmed, tokenizer)
    assert len(rows) == len(trimmed) < len(tokenizer)
    for text in texts:
        assert torch.equal(rows[trimmed(text)["input_ids"]], table[tokenizer(text)["input_ids"]])
