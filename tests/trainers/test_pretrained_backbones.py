"""SMALR and LIWE on backbones that people bring: frozen to the bit, with features that are computed once."""

from typing import Any

import pytest
import torch

from babelens import (
    LiweModel,
    LiweProcessor,
    LiweTrainer,
    LiweTrainingArguments,
    SmalrModel,
    SmalrProcessor,
    SmalrTrainer,
    SmalrTrainingArguments,
)
from babelens.processing.processing_liwe import frequent_characters
from babelens.processing.processing_smalr import frequent_words
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_training import QUIET, shapes_captions, shapes_corpus

TEXTS = {"text": ["a red dot", "Punkt in rot"], "language": ["en", "de"]}
METHODS = {"smalr": (SmalrTrainer, SmalrTrainingArguments), "liwe": (LiweTrainer, LiweTrainingArguments)}


def made(method: str, backbone: Any, image_processor: Any) -> tuple[Any, Any]:
    texts = shapes_captions()
    torch.manual_seed(1)
    if method == "liwe":
        processor = LiweProcessor(image_processor, frequent_characters(texts), word_length=8)
        sizes = {"character_size": 4, "word_length": 8, "word_hidden_sizes": [8], "word_size": 8, "hidden_size": 16}
        return LiweModel.from_backbone(backbone, vocab_size=processor.vocab_size, **sizes), processor
    words = {language: frequent_words(captions, language) for language, captions in texts.items()}
    options = {"languages": list(words), "vocabulary_sizes": [len(each) for each in words.values()]}
    options |= {"specific_words": 3, "latent_tokens": 4, "word_size": 5, "hidden_size": 16, "image_hidden_size": 16}
    return SmalrModel.from_backbone(backbone, **options), SmalrProcessor(image_processor, words)


@pytest.mark.parametrize(("name", "method"), [("dinov2", "smalr"), ("convnext", "liwe")])
def test_training_encodes_every_image_once(name, method, tmp_path, monkeypatch):
    plain, image_processor = saved_backbone(name, tmp_path / "backbone")
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    trainer_class, arguments_class = METHODS[method]
    for run in ("first", "second"):
        model, processor = made(method, plain, image_processor)
        encoded: list[int] = []
        model.vision_model.register_forward_pre_hook(
            lambda _, __, given, counts=encoded: counts.append(len(given["pixel_values"])), with_kwargs=True
        )
        settings = QUIET | {"per_device_train_batch_size": 8, "max_steps": 2}
        arguments = arguments_class(output_dir=str(tmp_path / run), **settings)
        start = {key: value.clone() for key, value in model.state_dict().items()}
        trainer_class(
            model,
            arguments,
            processing_class=processor,
            train_dataset={"image_text": shapes_corpus()},
            cache_dir=str(tmp_path / "cache"),
        ).train()
        assert sum(encoded) == (16 if run == "first" else 0)
        learned = model.state_dict()
        assert all(torch.equal(learned[f"vision_model.{key}"], value) for key, value in before.items())
        assert any(not torch.equal(learned[key], value) for key, value in start.items() if "vision_model" not in key)
