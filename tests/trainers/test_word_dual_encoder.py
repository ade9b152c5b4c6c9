from typing import Any

import pytest
import torch

import babelens
from babelens.data.batching.collators import CaptionedImages, SentenceCollator
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.processing_liwe import frequent_characters
from babelens.processing.processing_smalr import frequent_words
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_training import QUIET, prepared, shapes_captions, shapes_corpus

TRAINERS = {
    "smalr": (babelens.SmalrTrainer, babelens.SmalrTrainingArguments),
    "liwe": (babelens.LiweTrainer, babelens.LiweTrainingArguments),
}


def made(method: str, backbone: Any, image_processor: Any, **more: Any) -> tuple[Any, Any]:
    texts = shapes_captions()
    torch.manual_seed(1)
    if method == "liwe":
        processor = babelens.LiweProcessor(image_processor, frequent_characters(texts), word_length=8)
        sizes = {"character_size": 4, "word_length": 8, "word_hidden_sizes": [8], "word_size": 8, "hidden_size": 16}
        return on_backbone(babelens.LiweModel, backbone, vocab_size=processor.vocab_size, **sizes), processor
    words = {language: frequent_words(captions, language) for language, captions in sorted(texts.items())}
    options = {"languages": list(words), "vocabulary_sizes": [len(each) for each in words.values()]}
    options |= {"specific_words": 3, "latent_tokens": 4, "word_size": 5, "hidden_size": 16, "image_hidden_size": 16}
    model = on_backbone(babelens.SmalrModel, backbone, **options | more)
    return model, babelens.SmalrProcessor(image_processor, words)


def on_backbone(kind: Any, backbone: Any, **options: Any) -> Any:
    model = kind(kind.config_class(vision_config=backbone.config, **options))
    model.vision_model.load_state_dict(backbone.state_dict())
    return model


def trainer_of(method: str, parts: tuple[Any, Any], folder: Any, task: str = "image_text", **settings: Any) -> Any:
    trainer_class, arguments_class = TRAINERS[method]
    settings = QUIET | {"per_device_train_batch_size": 8} | settings
    return prepared(
        trainer_class(
            parts[0],
            arguments_class(output_dir=str(folder / "run"), **settings),
            processing_class=parts[1],
            train_dataset={task: shapes_corpus()},
            cache_dir=str(folder / "cache"),
        )
    )


def test_languages_of_a_batch_are_drawn_with_its_seeds():
    processor = babelens.LiweProcessor(MuralImageProcessor(), frequent_characters(shapes_captions()), word_length=8)
    view = CaptionedImages(shapes_corpus(), ["fr", "en", "de"], with_images=False)
    everything, some = (SentenceCollator(processor, lambda *_: None, 1, count) for count in (3, 2))
    examples = view.__getitems__([0, 1])
    assert everything(examples, [1, 2])["language_ids"].tolist() == [0, 1, 2] * 2
    drawn = [some(examples, [seed, 0])["language_ids"].tolist() for seed in range(20)]
    assert {tuple(ids) for ids in drawn} == {(0, 1) * 2, (0, 2) * 2, (1, 2) * 2}
    assert drawn == [some(examples, [seed, 5])["language_ids"].tolist() for seed in range(20)]
    texts = [
        caption for example in examples for caption in (example["captions"]["fr"][0], example["captions"]["de"][0])
    ]
    seed = next(seed for seed in range(20) if drawn[seed] == [0, 2, 0, 2])
    encoded = processor(text=texts, language=["fr", "de"] * 2, return_tensors="pt")
    assert torch.equal(some(examples, [seed, 0])["input_ids"], encoded["input_ids"])


def test_sentences_in_the_same_order_are_translations():
    """Five captions in two languages translate each other; a third language has three."""
    words = {"en": "thing", "de": "ding", "fr": "chose"}
    captions = {tag: [f"{word}{n}" for n in range(3 if tag == "fr" else 5)] for tag, word in words.items()}
    read: dict[str, list[str]] = {tag: [] for tag in words}

    class Recorder:
        def __call__(self, text, language, return_tensors):
            for each, tag in zip(text, language, strict=True):
                read[tag].append(each[-1])
            return {}

    collator = SentenceCollator(Recorder(), lambda *_: None, 2)
    for seed in range(30):
        collator([{"image_id": "1", "captions": captions}], [seed])
    assert read["en"] == read["de"] and set(read["en"]) == set("01234")
    assert read["fr"] != read["en"] and set(read["fr"]) == set("012")


@pytest.mark.parametrize(("name", "method"), [("dinov2", "smalr"), ("convnext", "liwe")])
def test_training_encodes_every_image_once(name, method, tmp_path):
    plain, image_processor = saved_backbone(name, tmp_path / "backbone")
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    for expected in (16, 0):
        model, processor = made(method, plain, image_processor)
        encoded: list[int] = []
        model.vision_model.register_forward_pre_hook(
            lambda _, __, given, counts=encoded: counts.append(len(given["pixel_values"])), with_kwargs=True
        )
        start = {key: value.clone() for key, value in model.state_dict().items()}
        trainer_of(method, (model, processor), tmp_path, max_steps=2).train()
        assert sum(encoded) == expected
        learned = model.state_dict()
        assert all(torch.equal(learned[f"vision_model.{key}"], value) for key, value in before.items())
        assert any(not torch.equal(learned[key], value) for key, value in start.items() if "vision_model" not in key)


def test_liwe_anneals_its_loss_step_by_step_with_adamax(tmp_path):
    trainer = trainer_of(
        "liwe", made("liwe", *saved_backbone("convnext", tmp_path / "backbone")), tmp_path, max_steps=3
    )
    seen, objective = [], trainer.model.contrastive_objective

    def annealed(output, *, step, **options):
        seen.append(step)
        return objective(output, step=step, **options)

    trainer.model.contrastive_objective = annealed
    trainer.train()
    assert type(trainer.optimizer.optimizer) is torch.optim.Adamax
    assert trainer.optimizer.param_groups[0]["lr"] == 1e-3
    assert seen == [0, 1, 2]


def test_the_warm_up_trains_the_projections_of_words_alone(tmp_path):
    mule = {"specific_words": None, "latent_tokens": 0, "mask_weight": 0, "initializer_range": 0.3}
    parts = made("smalr", *saved_backbone("dinov2", tmp_path / "backbone"), **mule)
    trainer = trainer_of("smalr", parts, tmp_path, "text_text", max_steps=12, learning_rate=1e-2)
    model = trainer.model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer.train()
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    projections = {name for name in before if name.startswith("word_embedding.projections.")}
    assert changed == {name for name in projections if name.endswith("weight")} | (changed & projections)
    assert model.word_embedding.specific.requires_grad  # they are trained afterwards
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert trainer.optimizer.param_groups[0]["lr"] == 1e-2
