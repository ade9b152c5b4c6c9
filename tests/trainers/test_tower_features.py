"""Frozen towers: their features are computed once, and training on them is training with the towers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Siglip2VisionConfig, Siglip2VisionModel
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from babelens import EtclConfig, EtclModel, EtclTrainer, MuralModel, MuralProcessor, MuralTrainer
from babelens.data import translation_pairs
from babelens.inference import Embedder
from babelens.trainers.tower_features import FrozenTowers
from babelens.utils.errors import TrainingSetupError
from tests.support.tiny_training import assert_same, shapes_corpus, shapes_trainer, weights

FROZEN: dict[str, Any] = {"freeze": ("image", "text"), "max_steps": 4, "dropout": 0.0}


class Counter:
    """Counts the examples that the towers of a model read."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.read = {"image": 0, "text": 0}
        for name, tower in model.towers.items():
            tower.register_forward_pre_hook(self._counted(name), with_kwargs=True)

    def _counted(self, name: str) -> Any:
        def count(module: Any, args: Any, kwargs: Any) -> None:
            self.read[name] += len(kwargs["pixel_values" if name == "image" else "input_ids"])

        return count


def trained(folder: Path, **changes: Any) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    trainer = shapes_trainer(folder / "out", cache_dir=str(folder / "features"), **FROZEN | changes)
    collator = trainer.data_collator.collators.get("image_text")
    if collator is not None:  # images as evaluation reads them, without a random crop
        processor = trainer.processing_class
        collator.transform = lambda images, seeds: processor(images=images, return_tensors="pt")["pixel_values"]
    counter = Counter(trainer.model)
    trainer.train()
    return weights(trainer.model), counter.read


def test_training_on_features_is_training_with_the_towers(tmp_path: Path) -> None:
    # LAMB and Adam divide by the size of a gradient, and would enlarge differences in its last digits.
    descent: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1}
    plain = {"cache_frozen_features": False} | descent
    on_features, read = trained(tmp_path, **descent)
    assert read == {"image": 0, "text": 0}
    with_towers, read = trained(tmp_path, **plain)
    assert read["image"] and read["text"]
    for name, value in with_towers.items():
        np.testing.assert_allclose(on_features[name], value, atol=1e-6, err_msg=name)


def test_features_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = trained(tmp_path)
    files = sorted((tmp_path / "features").iterdir())
    monkeypatch.setattr(FrozenTowers, "_embedder", lambda *args: pytest.fail("features are computed again"))
    again, _ = trained(tmp_path)
    assert_same(again, first)
    assert sorted((tmp_path / "features").iterdir()) == files


def test_texts_of_several_tasks_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The captions in English and German are those that the translations translate."""
    encode, encoded = Embedder.encode_text, []

    def recorded(self: Embedder, texts: list[str], **options: Any) -> np.ndarray:
        encoded.append(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(Embedder, "encode_text", recorded)
    trainer = shapes_trainer(tmp_path / "out", cache_dir=str(tmp_path / "features"), **FROZEN)
    captions, others = map(set, encoded)
    assert len(encoded[0]) == len(captions) == 32 and len(encoded[1]) == len(others) == 16
    assert not captions & others  # the second task's texts in French alone
    assert not trainer.frozen_towers._known_texts
    embedder = Embedder(trainer.model.tower_features, trainer.processing_class)
    pairs = list(translation_pairs(shapes_corpus(), [("en", "fr"), ("de", "fr")]))
    found = trainer.tasks["text_text"].__getitems__(list(range(len(pairs))))
    for text, column in (("text_a", "text_features"), ("text_b", "paired_text_features")):
        expected = encode(embedder, [pair[text] for pair in pairs], language="und", normalize=False)
        np.testing.assert_allclose(np.stack([example[column] for example in found]), expected, atol=1e-5)


@pytest.mark.parametrize("frozen", ["image", "text"])
def test_one_frozen_tower(frozen: str, tmp_path: Path) -> None:
    other = {"image": "text", "text": "image"}[frozen]
    _, read = trained(tmp_path, freeze=(frozen,))
    assert read[frozen] == 0 and read[other] > 0


def test_other_weights_have_other_features(tmp_path: Path) -> None:
    trained(tmp_path)
    count = len(list((tmp_path / "features").iterdir()))
    trained(tmp_path, seed=4)
    assert len(list((tmp_path / "features").iterdir())) == 2 * count


def test_triplets(tmp_path: Path) -> None:
    base = shapes_trainer(tmp_path / "unused")
    config = {name: getattr(base.model.config, name) for name in ("text_config", "vision_config")}
    model = EtclModel(EtclConfig(**config, freeze=["image", "text"]))
    counter = Counter(model)
    trainer = EtclTrainer(
        model=model,
        args=base.args,
        processing_class=base.processing_class,
        train_dataset={"triplet": shapes_corpus()},
        cache_dir=str(tmp_path / "features"),
    )
    texts, images = {caption for row in shapes_corpus() for caption in _texts(row)}, 16
    assert counter.read == {"image": images, "text": len(texts)}
    example = trainer.tasks["triplet"].__getitems__([0])[0]
    # Nothing of the corpus is read in a step: labels tell which images and texts are the same.
    assert example.keys() == {"image_features", "text_features", "paired_text_features", "identities"}
    trainer.train()
    assert counter.read == {"image": images, "text": len(texts)}


def _texts(row: dict[str, Any]) -> list[str]:
    return [caption["text"] for caption in row["captions"]]


def test_a_stream_is_embedded_in_every_step(tmp_path: Path) -> None:
    _, read = trained(tmp_path, tasks=("image_text",), shards={"image_text": 2})
    assert read["image"] and read["text"]


def test_resuming_gives_the_same_weights(tmp_path: Path) -> None:
    whole, _ = trained(tmp_path)
    options = FROZEN | {"cache_dir": str(tmp_path / "features"), "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path / "cut", **options).train()
    resumed = shapes_trainer(tmp_path / "cut", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2"))
    assert_same(weights(resumed.model), whole)


def test_options_without_an_effect_are_refused(tmp_path: Path) -> None:
    for options, reason in (
        ({"image_augmentation": {"rotation": 5.0}}, "image_augmentation"),
        ({"text_augmentation": {"subword_dropout": 0.1}}, "text_augmentation"),
    ):
        with pytest.raises(TrainingSetupError, match=reason):
            shapes_trainer(tmp_path, **FROZEN | options)


def test_a_prompt_is_not_lost_by_subword_dropout(tmp_path: Path) -> None:
    trainer = shapes_trainer(tmp_path)
    trainer.processing_class.text_prompt = "query: "
    trainer.args.text_augmentation = {"subword_dropout": 0.1}
    with pytest.raises(TrainingSetupError, match="query: "):
        trainer.make_collator("image_text")


def test_images_of_any_size_train_heads_on_a_frozen_tower(tmp_path: Path) -> None:
    """SigLIP 2 reads images as patches whose number depends on the image: no transform of training repeats that."""
    vision, image_processor = naflex_tower()
    base = shapes_trainer(tmp_path / "unused")
    for frozen in (["image"], []):
        model = MuralModel.from_towers(vision, base.model.text_model, projection_dim=8, freeze=frozen)
        given: dict[str, Any] = {
            "model": model,
            "args": base.args,
            "processing_class": MuralProcessor(image_processor, base.processing_class.tokenizer),
            "train_dataset": {"image_text": shapes_corpus()},
            "cache_dir": str(tmp_path / "features"),
        }
        if frozen:
            MuralTrainer(**given).train()
        else:
            with pytest.raises(TrainingSetupError, match="cannot repeat how a Siglip2ImageProcessorPil resizes"):
                MuralTrainer(**given).train()


def naflex_tower() -> tuple[Siglip2VisionModel, Siglip2ImageProcessorPil]:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tower = Siglip2VisionModel(Siglip2VisionConfig(**sizes, patch_size=8, num_patches=16))
    return tower, Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
