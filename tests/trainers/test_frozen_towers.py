"""Frozen and half-frozen towers: exactly what each choice trains, at which rates, and what it leaves alone."""

import json
import re

import numpy as np
import pytest
import torch
import yaml
from transformers import HfArgumentParser

from babelens import ContrastiveTrainingArguments, MuralModel, MuralTrainer
from babelens.trainers.tower_training import TowerTraining
from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from babelens.utils.errors import BabelensError, RecipeError, TrainingSetupError
from tests.support.processes import together
from tests.support.scaled_training import BATCH_NORM, PLAIN, make_double, train
from tests.support.tiny_recipes import mla, mural, rc3
from tests.support.tiny_training import assert_same, shapes_trainer, weights, write_shapes

# Two stages with batch norm, of one and of two blocks; three layers of BERT.
STAGES = BATCH_NORM | {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "bottleneck"}
SMALL = {"vision": STAGES, "text": {"num_hidden_layers": 3}, "max_steps": 2, "learning_rate": 1e-2}
RUNNING = r"(running_mean|running_var|num_batches_tracked)"
# Tower, how it is trained -> what of its weights and buffers then changes.
CHOICES = [
    ("image", {"train": "none"}, None),
    ("image", {"train": "upper", "layers": 1}, r"encoder\.stages\.1\..*"),
    ("image", {"train": "upper", "layers": 2}, r"encoder\.stages\..*"),
    ("image", {"train": "all"}, r".*"),
    ("text", {"train": "none"}, None),
    ("text", {"train": "upper", "layers": 1}, r"encoder\.layer\.2\..*"),
    ("text", {"train": "upper", "layers": 3, "rate": 0.1}, r"encoder\.layer\..*"),
    ("text", {"train": "all", "rate": 0.1}, r".*"),
]
PREFIX = {"image": "vision_model.", "text": "text_model."}


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize(("tower", "choice", "expected"), CHOICES, ids=str)
def test_what_is_trained_and_what_stays_to_the_bit(tower, choice, expected, tmp_path):
    before = weights(shapes_trainer(tmp_path, **SMALL).model)
    trainer = shapes_trainer(tmp_path, weight_decay=0.1, towers={tower: choice}, **SMALL)
    assert trainer.model.frozen_towers == ((tower,) if choice["train"] == "none" else ())
    trained = {weight for weight in trainer.model.parameters() if weight.requires_grad}
    trainer.train()
    optimized = {weight for group in trainer.optimizer.param_groups for weight in group["params"]}
    assert optimized == trained
    in_tower = {name.removeprefix(PREFIX[tower]): name for name in before if name.startswith(PREFIX[tower])}
    fitting = {name for part, name in in_tower.items() if expected and re.fullmatch(expected, part)}
    assert changed(before, weights(trainer.model)) == (before.keys() - in_tower.values()) | fitting
    trainer.save_model(tmp_path / "saved")
    loaded, info = MuralModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values())
    assert_same(weights(loaded), weights(trainer.model))
    assert loaded.frozen_towers == ()


def test_batch_statistics_of_frozen_weights_stand_still(tmp_path):
    towers = {"image": {"train": "none"}, "text": {"train": "upper", "layers": 1}}
    model = shapes_trainer(tmp_path, towers=towers, **SMALL).model.train()
    norms = [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms and not any(norm.training for norm in norms)
    encoder = model.text_model.encoder.layer
    dropouts = [{part.training for part in layer.modules()} for layer in (model.text_model.embeddings, *encoder)]
    assert dropouts == [{False}, {False}, {False}, {True}]


def test_a_locked_tower_is_not_unlocked_by_a_rate_alone(tmp_path):
    with pytest.raises(TrainingSetupError, match=r"towers\.text: rate=0\.5 .* freezes it .*such as train: all"):
        shapes_trainer(tmp_path, freeze=("text",), towers={"text": {"rate": 0.5}}, **SMALL)
    shapes_trainer(tmp_path, freeze=("image",), towers={"text": {"rate": 0.5}}, **SMALL)


def test_the_option_takes_precedence_over_the_configuration(tmp_path):
    trainer = shapes_trainer(tmp_path, freeze=("image", "text"), towers={"image": {"train": "all"}}, **SMALL)
    assert trainer.model.frozen_towers == ("text",)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    assert MuralModel.from_pretrained(tmp_path / "saved").frozen_towers == ("image", "text")


def test_a_frozen_tower_stays_to_the_bit_in_a_resumed_run(tmp_path):
    settings = SMALL | {"freeze": ("image",), "save_strategy": "steps", "save_steps": 1}
    first = shapes_trainer(tmp_path, **settings)
    before = weights(first.model.vision_model)
    first.train()
    resumed = shapes_trainer(tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert_same(weights(resumed.model.vision_model), before)
    assert_same(weights(resumed.model), weights(first.model))


# ---- Learning rates ----


def rates(trainer):
    """Parameter -> peak learning rate; of several optimizers, the list of theirs."""
    optimizer = trainer.create_optimizer()
    names = {weight: name for name, weight in trainer.model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        for weight in group["params"]:
            found.setdefault(names[weight], []).append(group["lr"])
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def test_a_tower_has_a_rate_of_its_own(tmp_path):
    towers = {"text": {}, "image": {"train": "upper", "layers": 2, "rate": 0.1}}
    found = rates(shapes_trainer(tmp_path, towers=towers, **SMALL))
    for name, rate in found.items():
        assert rate == (0.1 if name.startswith("vision_model.encoder.stages") else 1e-2), name
    assert not any(name.startswith("vision_model.embedder") for name in found)


def test_a_pattern_decides_before_the_tower(tmp_path):
    mapping = {"LayerNorm": 0.3, "text_heads": 0.2}
    trainer = shapes_trainer(tmp_path, towers={"text": {"rate": 0.1}}, learning_rate_mapping=mapping, **SMALL)
    found = rates(trainer)
    assert found["text_model.embeddings.LayerNorm.weight"] == 0.3
    assert found["text_model.embeddings.word_embeddings.weight"] == 0.1
    assert found["text_heads.image_text.weight"] == 0.2
    assert found["vision_model.embedder.embedder.convolution.weight"] == 1e-2


# ---- With what else training has ----

HALF = {"image": {"train": "none"}, "text": {"train": "upper", "layers": 2, "rate": 0.05}}


def trained_weights(folder, **changes):
    settings = SMALL | {"dropout": 0.0, "optim": "sgd", "towers": HALF} | changes
    trainer = shapes_trainer(folder, **settings)
    make_double(trainer)
    trainer.train()
    return weights(trainer.model)


@pytest.mark.parametrize(
    "changes",
    [{"embed_chunk_size": 3}, {"activation_checkpointing": True}],
    ids=str,
)
def test_what_saves_memory_gives_the_same_weights(changes, tmp_path):
    """Batch norm with frozen statistics treats the images of a chunk as those of a whole batch."""
    found, expected = (trained_weights(tmp_path, **more) for more in (changes, {}))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_in_bfloat16(tmp_path):
    before = weights(shapes_trainer(tmp_path, **SMALL).model)
    trainer = shapes_trainer(tmp_path, towers=HALF, **SMALL | {"precision": "bfloat16"})
    trainer.train()
    found = changed(before, weights(trainer.model))
    assert found and not any(name.startswith("text_model.embeddings") for name in found)
    assert {weight.dtype for weight in trainer.model.parameters()} == {torch.float32}


def test_two_processes_train_as_one(tmp_path):
    settings = PLAIN | SMALL | {"double": True, "max_grad_norm": 0.0, "towers": HALF}
    expected = together(1, train, tmp_path / "one", shares=[8], **settings)[0]
    for rank in together(2, train, tmp_path / "two", shares=[5, 3], **settings):
        for name, value in expected.weights.items():
            np.testing.assert_allclose(rank.weights[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


# ---- What cannot be ----

WRONG = [
    ({"vision": {}}, "towers: there is no 'vision'; there are: image, text"),
    ({"txt": {}}, "towers: there is no 'txt'; did you mean 'text'"),
    ({"text": "none"}, "towers.text: 'none' must be a mapping"),
    ({"text": {"trains": "none"}}, "towers.text: its keys: there is no 'trains'; did you mean 'train'"),
    ({"text": {"train": "some"}}, "towers.text: train: there is no 'some'; there are: all, none, upper"),
    ({"text": {"train": "none", "rate": 1e-3}}, "towers.text: rate=0.001 is for a tower that is trained, and train"),
    ({"text": {"train": "upper"}}, "towers.text: train: upper needs layers"),
    ({"text": {"layers": 2}}, "towers.text: layers=2 is for train: upper, and not for train: all"),
    ({"text": {"train": "upper", "layers": 0}}, "towers.text: layers=0 must be a positive whole number"),
    ({"text": {"train": "upper", "layers": "2"}}, "towers.text: layers='2' must be a positive whole number"),
    ({"text": {"rate": float("nan")}}, "towers.text: rate=nan must be a positive number"),
    ({"text": {"rate": -1}}, "towers.text: rate=-1 must be a positive number"),
]
# These are noticed when the model is there.
MISFITS = [
    ({"text": {"train": "upper", "layers": 4}}, r"towers.text: layers=4 is more than this tower \(bert\) has: 3"),
    ({"image": {"train": "upper", "layers": 3}}, r"towers.image: layers=3 is more than this tower \(resnet\) has: 2"),
]


@pytest.mark.parametrize(("towers", "message"), WRONG, ids=str)
def test_wrong_settings_are_refused_with_the_arguments(towers, message, tmp_path):
    with pytest.raises(TrainingSetupError, match=message):
        ContrastiveTrainingArguments(output_dir=str(tmp_path), precision="float32", towers=towers)


@pytest.mark.parametrize(("towers", "message"), MISFITS, ids=str)
def test_settings_that_do_not_fit_the_tower_are_refused(towers, message, tmp_path):
    with pytest.raises(TrainingSetupError, match=message):
        shapes_trainer(tmp_path, towers=towers, **SMALL)


def test_rates_that_contradict_each_other(tmp_path):
    with pytest.raises(ValueError, match=r"task_learning_rates and towers.text.rate both set the same rates"):
        shapes_trainer(tmp_path, towers={"text": {"rate": 1e-3}}, task_learning_rates={"image_text": 1e-3})


def test_an_optimizer_of_ones_own(tmp_path):
    trainer = shapes_trainer(tmp_path, towers=HALF, **SMALL)
    own = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    with pytest.raises(TrainingSetupError, match="towers: an optimizer of your own has learning rates of its own"):
        MuralTrainer(
            trainer.model,
            trainer.args,
            processing_class=trainer.processing_class,
            train_dataset=trainer.tasks,
            optimizers=(own, None),
        )


# ---- Recipes and files ----


def test_arguments_from_a_json_file(tmp_path):
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"output_dir": str(tmp_path), "towers": HALF}))
    (arguments,) = HfArgumentParser(ContrastiveTrainingArguments).parse_json_file(str(file))
    assert arguments.towers == HALF


@pytest.fixture
def run(tmp_path):
    """Runs a recipe on the shapes with keys of its `training`."""
    folder = write_shapes(tmp_path)

    def run(make=mural, stages=None, **training):
        recipe = make(folder) | ({"stages": stages} if stages else {})
        recipe["training"] = recipe["training"] | training
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(recipe))
        return RecipeRun(load_recipe(file), tmp_path / "run", "babelens train recipe.yaml")

    return run


def test_a_recipe_freezes_a_tower_and_a_half(run, tmp_path):
    trainer = run(towers={"image": {"train": "none"}, "text": {"train": "upper", "layers": 1}}).train()
    loaded, info = MuralModel.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not any(info.values())
    assert_same(weights(loaded), weights(trainer.model))


def test_a_later_stage_is_checked_before_the_first_is_trained(run, tmp_path):
    wrong = {"training": {"towers": {"text": {"train": "upper", "layers": 2}}}}
    stages = [{"name": "one", "tasks": ["image_text"]}, {"name": "two", "tasks": ["image_text"]} | wrong]
    with pytest.raises(TrainingSetupError, match=r"towers.text: layers=2 is more than this tower \(bert\) has: 1"):
        run(stages=stages).train()
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_recipes_name_what_is_wrong(run):
    with pytest.raises(RecipeError, match=r"recipe.yaml: training: towers.text: rate=-2.0 must be a positive"):
        run(towers={"text": {"rate": -2.0}}).train()


@pytest.mark.parametrize(("make", "message"), [(mla, "training.towers: .* MlaModel is none"), (rc3, "towers")])
def test_other_methods_refuse_the_option(make, message, run):
    with pytest.raises(BabelensError, match=message):
        run(make, towers={"text": {"train": "none"}}).check()
        run(make, towers={"text": {"train": "none"}}).train()


def test_the_defaults_train_a_whole_tower():
    assert TowerTraining() == TowerTraining(train="all", layers=None, rate=None)
