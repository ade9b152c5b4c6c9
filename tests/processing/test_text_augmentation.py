import pytest
import torch

from babelens.processing.augmentation import SubwordDropout, TextAugmentation
from babelens.processing.tokenizer_training import train_wordpiece

TEXTS = [
    "ein Sonnenaufgang über Hügeln",
    "sunrise over hills",
    "山上的日出",
    "слон",
    "x" * 200,
    "",
    "☃ snow",
    "Ärger!",
]
SEEDS = list(range(100, 100 + len(TEXTS)))


@pytest.fixture(scope="module", params=["##", ""])
def tokenizer(request):
    captions = [*TEXTS[:4], "Sonne Aufgang Hügel sun rise hill over über"] * 3
    return train_wordpiece(captions, 160, alphabet=TEXTS[:4], continuing_subword_prefix=request.param)


def drawn(tokenizer, texts=TEXTS, seeds=SEEDS, column=0, max_length=64, **augmentation):
    return SubwordDropout(tokenizer, TextAugmentation(**augmentation), max_length)(texts, seeds, column)


def test_without_dropout_texts_are_read_by_the_tokenizer(tokenizer, max_length=6):
    augmentation = {"subword_dropout": 1.0, "share": 0.0}
    expected = tokenizer(TEXTS, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    found = drawn(tokenizer, max_length=max_length, **augmentation)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name])


def test_other_segmentations_spell_the_same_words(tokenizer):
    plain = tokenizer(TEXTS)["input_ids"]
    found = drawn(tokenizer, subword_dropout=0.5)
    spelled, words = (
        [
            text if tokenizer.backend_tokenizer.model.continuing_subword_prefix else text.replace(" ", "")
            for text in tokenizer.batch_decode(ids, skip_special_tokens=True)
        ]
        for ids in (found["input_ids"], plain)
    )
    assert spelled == words
    lengths = found["attention_mask"].sum(1).tolist()
    assert all(length >= len(row) for length, row in zip(lengths, plain, strict=True))
    assert sum(lengths) > sum(map(len, plain))
    unknown = (found["input_ids"] == tokenizer.unk_token_id).sum()
    assert unknown == sum(row.count(tokenizer.unk_token_id) for row in plain)


def test_a_segmentation_depends_on_its_own_seed_and_column_alone(tokenizer):
    """Not on the batch, so a resumed run and a run with more workers see the same."""
    together = drawn(tokenizer, subword_dropout=0.5)
    for place, (text, seed) in enumerate(zip(TEXTS, SEEDS, strict=True)):
        alone = drawn(tokenizer, [text], [seed], subword_dropout=0.5)["input_ids"][0]
        assert torch.equal(together["input_ids"][place][: len(alone)], alone)
    texts = ["sunrise over hills"] * 20
    first, again, second = (
        drawn(tokenizer, texts, [7] * 20, column, subword_dropout=0.5)["input_ids"] for column in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert first.shape != second.shape or not torch.equal(first, second)
