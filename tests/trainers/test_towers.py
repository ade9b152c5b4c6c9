import re

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import SwinConfig, XLMConfig

from babelens import ContrastiveTrainingArguments, MuralModel, MuralTrainer
from babelens.inference import Embedder
from babelens.modeling.modeling_dual_encoder import build_tower
from babelens.trainers.frozen_features import frozen_names
from babelens.trainers.tower_training import tower_layers, upper_weights
from babelens.utils.errors import InputError
from tests.support.scaled_training import BATCH_NORM
from tests.support.tiny_recipes import mural, recipe_run
from tests.support.tiny_training import assert_same, changed, shapes_trainer, weights, write_shapes

# Two stages with batch norm, of one and of two blocks; three layers of BERT.
STAGES = BATCH_NORM | {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "bottleneck"}
SMALL = {"vision": STAGES, "text": {"num_hidden_layers": 3}, "max_steps": 2, "learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("image", "text", "frozen"),
    [
        ({"train": "none"}, {"train": "upper", "layers": 2}, r"vision_|text_model\.(emb|encoder\.layer\.0)"),
        ({"train": "upper", "layers": 1}, {"train": "all"}, r"vision_model\.(emb|encoder\.stages\.0)"),
    ],
    ids=str,
)
def test_what_is_trained_and_what_stays_to_the_bit(image, text, frozen, tmp_path):
    before = weights(shapes_trainer(tmp_path, **SMALL).model)
    trainer = shapes_trainer(tmp_path, weight_decay=0.1, towers={"image": image, "text": text}, **SMALL)
    assert frozen_names(trainer.model) == (("image",) if image["train"] == "none" else ())
    trained = {weight for weight in trainer.model.parameters() if weight.requires_grad}
    trainer.train()
    assert {weight for group in trainer.optimizer.param_groups for weight in group["params"]} == trained
    assert changed(before, weights(trainer.model)) == {name for name in before if not re.match(frozen, name)}
    trainer.save_model(tmp_path / "saved")
    loaded, info = MuralModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()) and frozen_names(loaded) == ()
    assert_same(weights(loaded), weights(trainer.model))


def test_frozen_weights_are_in_evaluation_mode(tmp_path):
    towers = {"image": {"train": "none"}, "text": {"train": "upper", "layers": 1}}
    model = shapes_trainer(tmp_path, towers=towers, **SMALL).model.train()
    norms = [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms and not any(norm.training for norm in norms)
    encoder = model.text_model.encoder.layer
    modes = [{part.training for part in layer.modules()} for layer in (model.text_model.embeddings, *encoder)]
    assert modes == [{False}, {False}, {False}, {True}]


def test_the_option_takes_precedence_over_the_configuration(tmp_path):
    trainer = shapes_trainer(tmp_path, freeze=("image", "text"), towers={"image": {"train": "all"}}, **SMALL)
    assert frozen_names(trainer.model) == ("text",)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    assert frozen_names(MuralModel.from_pretrained(tmp_path / "saved")) == ("image", "text")


@pytest.mark.parametrize(
    ("towers", "named"),
    [
        ({"txt": {}}, "did you mean 'text'"),
        ({"text": {"trains": "none"}}, "trains"),
        ({"text": {"train": "upper"}}, "layers"),
        ({"text": {"train": "upper", "layers": 4}}, "layers=4"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_with_the_name_of_the_tower(towers, named, tmp_path):
    with pytest.raises(InputError, match=rf"towers.*{named}"):
        shapes_trainer(tmp_path, towers=towers, **SMALL)


def test_a_later_stage_is_checked_before_the_first_is_trained(tmp_path):
    folder, wrong = write_shapes(tmp_path), {"training": {"towers": {"text": {"train": "upper", "layers": 2}}}}
    stages = [{"name": "one", "tasks": ["image_text"]}, {"name": "two", "tasks": ["image_text"]} | wrong]
    with pytest.raises(InputError, match=r"towers.text: layers=2 is more than this tower has: 1"):
        recipe_run(mural(folder) | {"stages": stages}, tmp_path).train()
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_lora_around_a_model(tmp_path):
    """Only PEFT's weights change; the saved adapters give the same model around a fresh one, and merged."""
    settings = {"max_steps": 4, "learning_rate": 1e-2}
    plain = shapes_trainer(tmp_path, **settings)
    heads = ["image_text", "text_text", "similarity"]
    lora = LoraConfig(r=2, target_modules=r"text_model\..*\.(query|value)", modules_to_save=heads)
    model = get_peft_model(plain.model, lora)
    before = weights(model)
    assert frozen_names(model) == ("image",)
    parts = {"processing_class": plain.processing_class, "train_dataset": plain.train_dataset}
    trainer = MuralTrainer(model, plain.args, **parts)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    assert changed(before, weights(model)) == {n for n in before if "lora_" in n or "modules_to_save" in n}
    texts, reader = ["a red bar", "a blue dot"], plain.processing_class
    expected = Embedder(model, reader).encode_text(texts, language="en")
    loaded = PeftModel.from_pretrained(shapes_trainer(tmp_path, **settings).model, tmp_path / "adapter")
    assert np.array_equal(Embedder(loaded, reader).encode_text(texts, language="en"), expected)
    merged = loaded.merge_and_unload()
    np.testing.assert_allclose(Embedder(merged, reader).encode_text(texts, language="en"), expected, atol=2e-6)
    trainer.args.towers = {"image": {"train": "none"}}
    with pytest.raises(InputError, match=r"towers\.image: PeftModel"):
        MuralTrainer(model, trainer.args, **parts)


FROZEN = {"freeze": ("image", "text"), "max_steps": 4, "dropout": 0.0}


def trained(folder, **changes):
    trainer = shapes_trainer(folder / "out", cache_dir=str(folder / "features"), **FROZEN | changes)
    collator = trainer.mixture.collators["image_text"]
    processor, read = trainer.processing_class, {"image": 0, "text": 0}
    # Evaluation reads images without a random crop.
    collator.transform = lambda images, seeds: processor(images=images, return_tensors="pt")["pixel_values"]

    def count(name, column):
        def hook(module, args, kwargs):
            read[name] += len(kwargs[column])

        trainer.model.towers[name].register_forward_pre_hook(hook, with_kwargs=True)

    count("image", "pixel_values")
    count("text", "input_ids")
    trainer.train()
    return weights(trainer.model), read


def test_training_on_features_is_training_with_the_towers(tmp_path, monkeypatch):
    # LAMB and Adam divide by the size of a gradient, and would enlarge differences in its last digits.
    descent = {"optim": "sgd", "learning_rate": 0.1}
    on_features, read = trained(tmp_path, **descent)
    assert read == {"image": 0, "text": 0}
    with_towers, read = trained(tmp_path, cache_frozen_features=False, **descent)
    assert read["image"] and read["text"]
    for name, value in with_towers.items():
        np.testing.assert_allclose(on_features[name], value, atol=1e-6, err_msg=name)
    files = len(list((tmp_path / "features").iterdir()))
    trained(tmp_path, seed=4)  # other weights
    assert len(list((tmp_path / "features").iterdir())) == 2 * files
    monkeypatch.setattr(Embedder, "encode_text", lambda *args, **kw: pytest.fail("features are computed again"))
    assert_same(trained(tmp_path, **descent)[0], on_features)


@pytest.mark.parametrize(
    ("changes", "read"), [({"freeze": ("image",)}, {"text"}), ({"shards": {"image_text": 2}}, {"image", "text"})]
)
def test_what_is_trained_or_streamed_is_embedded_in_every_step(changes, read, tmp_path):
    _, counts = trained(tmp_path, tasks=("image_text",), **changes)
    assert {name for name, count in counts.items() if count} == read


def test_augmentation_without_an_effect_is_refused(tmp_path):
    for options in ({"image_augmentation": {"rotation": 5.0}}, {"text_augmentation": {"subword_dropout": 0.1}}):
        with pytest.raises(InputError, match=next(iter(options))):
            shapes_trainer(tmp_path, **FROZEN | options).train()
    trainer = shapes_trainer(tmp_path)
    trainer.processing_class.text_prompt = "query: "
    trainer.args.text_augmentation = {"subword_dropout": 0.1}
    with pytest.raises(InputError, match="query: "):
        trainer.prepare(trainer.model, trainer.train_dataset)
    assert ContrastiveTrainingArguments(output_dir=str(tmp_path)).cache_frozen_features


@pytest.mark.parametrize(
    ("config", "count", "depths"),
    [
        (
            XLMConfig(emb_dim=16, n_layers=3, n_heads=2, n_words=50),
            3,
            {"attentions.0.": 2, "ffns.1.": 1, "embeddings.": 3},
        ),
        (
            SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1, 2], num_heads=[1, 2], window_size=2),
            2,
            {"embeddings.": 2, "encoder.layers.0.": 1, "layernorm": 0},
        ),
    ],
    ids=lambda part: getattr(part, "model_type", ""),
)
def test_layers_of_a_tower(config, count, depths):
    tower = build_tower(config)
    assert len(tower_layers(tower)) == count
    for layers in range(1, count + 1):
        upper = set(upper_weights(tower, layers))
        for beginning, depth in depths.items():
            own = {weight for name, weight in tower.named_parameters() if name.startswith(beginning)}
            assert (own <= upper) if depth < layers else own.isdisjoint(upper), beginning
