"""Half-frozen text towers: the states below the trained layers are computed once, and training on them is training
with the whole tower."""

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_training
import torch
from datasets import Dataset
from processes import together
from scaled_training import PLAIN, train
from tiny_training import assert_same, shapes_corpus, shapes_processor, shapes_trainer, weights
from tokenizers.processors import TemplateProcessing
from transformers import CLIPTextConfig, ModernBertConfig, T5Config

from babelens import MuralConfig, MuralModel, MuralTrainer
from babelens.configuration.errors import NonFiniteError
from babelens.data.corpus.corpus import as_caption_corpus
from babelens.modeling.towers import build_tower
from babelens.trainers import frozen_features
from babelens.trainers.frozen_features import HalfFrozenText
from babelens.trainers.lower_layers import tower_layers

UPPER = {"towers": {"text": {"train": "upper", "layers": 1}}}
# Dropout in the upper layers, so that the same random numbers must be drawn.
SETTINGS: dict[str, Any] = UPPER | {
    "text": {"num_hidden_layers": 3},
    "max_steps": 6,
    "optim": "sgd",
    "learning_rate": 0.1,
    "dropout": 0.1,
}


def trained(folder: Path, **changes: Any) -> tuple[dict[str, np.ndarray], list[int]]:
    """The weights after a training, and the number of texts that each layer of the text tower computed in it."""
    trainer = shapes_trainer(folder / "out", cache_dir=str(folder / "features"), **SETTINGS | changes)
    read = [0, 0, 0]
    for index, layer in enumerate(trainer.model.text_model.encoder.layer):

        def count(module: Any, args: Any, index: int = index) -> None:
            read[index] += len(args[0])

        layer.attention.self.query.register_forward_pre_hook(count)
    trainer.train()
    assert not any("forward" in layer.__dict__ for layer in trainer.model.text_model.encoder.layer)
    return weights(trainer.model), read


@pytest.fixture(autouse=True)
def texts_of_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that batches have padding."""
    colors = {
        "red": ("rot", "rouge", (220, 30, 30)),
        "very deep dark green of the old forest": ("tiefes sehr dunkles grün", "vert foncé", (30, 180, 30)),
        "light blue": ("sehr sehr helles blau", "bleu", (40, 40, 220)),
        "yellow": ("gelb", "jaune citron", (230, 220, 40)),
    }
    monkeypatch.setattr(tiny_training, "COLORS", colors)


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embed_chunk_size": 3},
        {"embed_chunk_size": 3, "embed_chunks_kept": 1},
        {"activation_checkpointing": True},
        {"gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_training_on_states_is_training_with_all_layers(changes: dict[str, Any], tmp_path: Path) -> None:
    on_states, read = trained(tmp_path, **changes)
    assert read[:2] == [0, 0] and read[2]
    with_all, read = trained(tmp_path, cache_frozen_features=False, **changes)
    assert all(read)
    assert_close(on_states, with_all)


def test_states_are_kept_in_bfloat16_if_the_layers_compute_in_it(tmp_path: Path) -> None:
    trainer = shapes_trainer(tmp_path, **SETTINGS, precision="bfloat16", cache_dir=str(tmp_path / "features"))
    half = trainer.frozen_towers.half_frozen
    inputs = trainer.processing_class(text=["a red dot", "Quadrat in rot"], language="und", return_tensors="pt")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        output = trainer.model.eval().text_model(**inputs, output_hidden_states=True)
    found = half._of(inputs["input_ids"], inputs["attention_mask"])
    assert half._states.states.dtype == torch.bfloat16 and found.dtype == torch.float32
    is_text = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[is_text], output.hidden_states[2][is_text], rtol=2**-7, atol=2**-7)
    assert not found[~is_text].any()
    trainer.train()


def test_both_towers_are_read_once(tmp_path: Path) -> None:
    for freeze in (("image",), ("image", "text")):  # `towers` unlocks the upper layers
        trainer = shapes_trainer(tmp_path / "out", freeze=freeze, cache_dir=str(tmp_path / "features"), **SETTINGS)
        trainer.model.vision_model.register_forward_pre_hook(lambda *args: pytest.fail("it reads an image"))
        trainer.train()
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_states_are_computed_once_and_found_by_later_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = trained(tmp_path)
    monkeypatch.setattr(HalfFrozenText, "_computed", lambda *args: pytest.fail("states are computed again"))
    again, _ = trained(tmp_path)
    assert_same(again, first)
    for rate in (0.0, 0.5):  # other upper layers have the same states below them
        towers = {"text": UPPER["towers"]["text"] | {"rate": 0.1 + rate}}
        trained(tmp_path, towers=towers)
    assert len(list((tmp_path / "features").iterdir())) == 1


def test_other_lower_layers_and_texts_have_other_states(tmp_path: Path) -> None:
    for changes, count in (({}, 1), ({"seed": 4}, 2), ({"tasks": ("image_text",)}, 3), ({}, 3)):
        trained(tmp_path, **changes)
        assert len(list((tmp_path / "features").iterdir())) == count


def test_a_resumed_run_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, _ = trained(tmp_path)
    options = SETTINGS | {"cache_dir": str(tmp_path / "features"), "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path / "cut", **options).train()
    resumed = shapes_trainer(tmp_path / "cut", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2"))
    assert_same(weights(resumed.model), whole)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_states_follow_weights_that_change_later(is_resumed: bool, tmp_path: Path) -> None:
    expected, _ = trained(tmp_path, save_strategy="steps", save_steps=3)
    other = shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "other"), **SETTINGS | {"seed": 5})
    if is_resumed:  # the checkpoint has the weights with which the states were computed before
        other = shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "features"), **SETTINGS)
        with torch.no_grad():
            other.model.text_model.embeddings.word_embeddings.weight.zero_()
        other.frozen_towers.half_frozen._compute()
        other.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-3"))
        assert_same(weights(other.model), expected)
        return
    same = shapes_trainer(tmp_path / "out", **SETTINGS | {"cache_frozen_features": False})
    other = shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "features"), **SETTINGS)
    for trainer in (same, other):
        with torch.no_grad():
            trainer.model.text_model.embeddings.word_embeddings.weight.mul_(2)
        torch.manual_seed(0)
        trainer.train()
    assert_close(weights(other.model), weights(same.model))


def test_a_layer_that_is_unfrozen_afterwards_is_trained(tmp_path: Path) -> None:
    found = []
    for cached in (True, False):
        changes = SETTINGS | {"cache_dir": str(tmp_path / "features"), "cache_frozen_features": cached}
        trainer = shapes_trainer(tmp_path / "out", **changes)
        trainer.model.text_model.encoder.layer[1].requires_grad_(True)
        torch.manual_seed(0)
        trainer.train()
        found.append(weights(trainer.model))
        assert not any("forward" in layer.__dict__ for layer in trainer.model.text_model.encoder.layer)
    assert_close(*found)


def test_texts_without_a_token_run_through_all_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_words(text: str) -> str:
        return "\u200b" if text.endswith("rouge") else text  # a zero-width space: a text, and no token

    def corpus() -> Dataset:
        rows = shapes_corpus().to_list()
        for row in rows:
            row["captions"] = [caption | {"text": without_words(caption["text"])} for caption in row["captions"]]
        return as_caption_corpus(Dataset.from_list(rows, features=shapes_corpus().features))

    processor = shapes_processor(shapes_corpus())
    processor.tokenizer._tokenizer.post_processor = TemplateProcessing(single="$A")  # neither [CLS] nor [SEP]
    monkeypatch.setattr(tiny_training, "shapes_processor", lambda corpus: copy.deepcopy(processor))
    monkeypatch.setattr(tiny_training, "shapes_corpus", corpus)
    on_states, read = trained(tmp_path, per_device_eval_batch_size=1)
    with_all, read_by_all = trained(tmp_path, cache_frozen_features=False)
    assert 0 < read[0] < read_by_all[0]
    assert_close(on_states, with_all)


@pytest.mark.parametrize(
    ("where", "name", "value"), [("tokenizer", "padding_side", "left"), ("", "pad_to_max_length", True)]
)
def test_texts_that_are_padded_otherwise_run_through_all_layers(
    where: str,
    name: str,
    value: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor = shapes_processor(shapes_corpus())
    setattr(getattr(processor, where) if where else processor, name, value)
    monkeypatch.setattr(tiny_training, "shapes_processor", lambda corpus: copy.deepcopy(processor))
    with caplog.at_level(logging.INFO, "babelens"):
        _, read = trained(tmp_path)
    assert all(read) and "cannot start in the middle" in caplog.text
    assert not list((tmp_path / "features").glob("*"))


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    settings = PLAIN | UPPER | {"text": {"num_hidden_layers": 3}, "max_steps": 3, "cache_dir": str(tmp_path / "kept")}
    expected = together(1, train, tmp_path / "one", shares=[8], **settings | {"cache_frozen_features": False})[0]
    for rank in together(2, train, tmp_path / "two", shares=[5, 3], **settings):
        assert_close(rank.weights, expected.weights)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_evaluation_during_training_runs_all_layers(tmp_path: Path) -> None:
    _, read = trained(tmp_path, eval_strategy="steps", eval_steps=6)
    assert read[0] == read[1] == 48  # 16 captions in three languages


@pytest.mark.parametrize(
    "changes",
    [
        {"cache_frozen_features": False},
        {"text_augmentation": {"subword_dropout": 0.5}},
        {"torch_compile": True},
        {"towers": {"text": {"train": "upper", "layers": 3}}},
        {"towers": {"text": {"train": "lora"}}},
        {"towers": {"text": {"train": "biases"}}},
        {"towers": None},
    ],
    ids=str,
)
def test_no_states_where_layers_cannot_be_skipped(changes: Any, tmp_path: Path) -> None:
    trainer = shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "features"), **SETTINGS | changes)
    assert trainer.frozen_towers.half_frozen is None
    assert not (tmp_path / "features").exists()


def test_adapters_in_upper_layers_leave_the_lower_frozen(tmp_path: Path) -> None:
    lora = {"train": "lora", "lora": {"layers_to_transform": [2], "r": 2}}
    on_states, read = trained(tmp_path, towers={"text": lora})
    assert read[:2] == [0, 0]
    with_all, _ = trained(tmp_path, towers={"text": lora}, cache_frozen_features=False)
    assert_close(on_states, with_all)


def test_texts_of_a_stream_run_through_all_layers(tmp_path: Path) -> None:
    changes = {"shards": {"text_text": 2}}  # texts in French are in no caption
    on_states, read = trained(tmp_path, **changes)
    with_all, read_by_all = trained(tmp_path, cache_frozen_features=False, **changes)
    assert 0 < read[0] < read_by_all[0]
    assert_close(on_states, with_all)


def trainer_of(text: Any, folder: Path, **changes: Any) -> MuralTrainer:
    """A trainer of a model with a text tower of another kind."""
    base = shapes_trainer(folder, **{name: value for name, value in SETTINGS.items() if name != "text"} | changes)
    torch.manual_seed(0)
    model = MuralModel(MuralConfig(text_config=text, vision_config=base.model.config.vision_config))
    return MuralTrainer(
        model=model,
        args=base.args,
        processing_class=base.processing_class,
        train_dataset={"image_text": shapes_corpus()},
        cache_dir=str(folder / "features"),
    )


SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
TOKENS = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


@pytest.mark.parametrize(
    "text",
    [
        CLIPTextConfig(**SIZES, **TOKENS),
        ModernBertConfig(**SIZES, **TOKENS, cls_token_id=2, sep_token_id=3, global_attn_every_n_layers=2),
    ],
    ids=lambda text: text.model_type,
)
def test_a_normalization_above_all_layers_is_trained(text: Any, tmp_path: Path) -> None:
    found = []
    for cached in (True, False):
        trainer = trainer_of(text, tmp_path, cache_frozen_features=cached)
        read = []
        lowest = tower_layers(trainer.model.text_model)[0][0]
        dense = next(part for part in lowest.modules() if isinstance(part, torch.nn.Linear))
        dense.register_forward_pre_hook(lambda *args, read=read: read.append(args))
        trainer.train()
        assert bool(read) != cached
        found.append(weights(trainer.model))
    assert_close(*found)
    norms = [name for name in found[0] if name.startswith("text_model.final_") and name.endswith("norm.weight")]
    fresh = weights(trainer_of(text, tmp_path).model)
    assert len(norms) == 1 and not np.array_equal(found[0][norms[0]], fresh[norms[0]])


def test_layers_that_cannot_start_in_the_middle_all_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    t5 = T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=3, num_heads=2, vocab_size=200, pad_token_id=0)
    with caplog.at_level(logging.INFO, "babelens"):
        trainer = trainer_of(build_tower(t5, pooler=False).config, tmp_path)
    assert "the layers of this text tower (t5) cannot start in the middle: all run in every step" in caplog.text
    assert not (tmp_path / "features").exists()
    trainer.train()


def test_states_that_memory_does_not_hold_are_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_features, "available_memory", lambda: 10_000)
    _, read = trained(tmp_path)
    assert "more than half of the free memory: all layers run in every step" in caplog.text
    assert all(read)


def test_a_lower_layer_that_gives_no_numbers_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HalfFrozenText, "_computed", lambda self, states: torch.full((4, 2), float("nan")))
    with pytest.raises(NonFiniteError):
        shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "features"), **SETTINGS)
