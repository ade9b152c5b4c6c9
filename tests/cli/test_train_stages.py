import json

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from babelens import Embedder
from babelens.trainers.mla import MlaTrainer
from tests.support.tiny_native import saved, tiny_bert, tiny_clip, tiny_siglip
from tests.support.tiny_recipes import SAVING, mla
from tests.support.tiny_training import shapes_captions, write_shapes


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    saved(tiny_clip(), folder / "clip")
    content = mla(folder)
    content["model"]["overrides"] |= {"acquirer_size": 8, "embedding_size": 12}
    content["train"]["image_text"] = {"source": str(folder), "languages": ["de", "fr"], "license": "CC0-1.0"}
    del content["validation"]
    settings = {"per_device_train_batch_size": 4, "max_steps": 4, "learning_rate": 1e-3}
    content["training"] |= SAVING | settings
    content["stages"] = [
        {"name": "transfer", "tasks": ["text_text"]},
        {"name": "exposure", "tasks": ["image_text", "text_text"], "training": {"max_steps": 5}},
    ]
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="module")
def trained(run, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "mla-shapes"
    run("train", recipe, "--output", folder)
    return folder


def test_each_stage_has_its_tasks_and_its_arguments(trained):
    logged = {}
    for stage, step in (("transfer", 4), ("exposure", 5)):
        state = json.loads((trained / "checkpoints" / stage / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert state["global_step"] == step
        logged[stage] = {key for entry in state["log_history"] for key in entry if key.startswith("loss_")}
    assert logged == {"transfer": {"loss_text_text"}, "exposure": {"loss_image_text", "loss_text_text"}}


def test_a_stage_goes_on_from_the_one_before(trained):
    first, last = (
        load_file(part / "model.safetensors") for part in (trained / "checkpoints/transfer/finished", trained)
    )
    checkpoint = load_file(trained / "checkpoints/transfer/checkpoint-4/model.safetensors")
    assert all((checkpoint[name] == value).all() for name, value in first.items())
    moved = {name for name, value in last.items() if not (value == first[name]).all()}
    assert moved and all(".mla_" in name for name in moved)


@pytest.mark.parametrize("stage", ["exposure", pytest.param("transfer", marks=pytest.mark.slow)])
def test_a_run_that_broke_off_resumes_in_its_stage(run, recipe, trained, tmp_path, monkeypatch, stage):
    command, step = ("train", recipe, "--output", tmp_path / "run"), MlaTrainer.training_step

    def failing(self, model, inputs, *arguments):
        if self.args.output_dir.endswith(stage) and self.state.global_step == 3:
            raise RuntimeError("power cut")
        return step(self, model, inputs, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(MlaTrainer, "training_step", failing)
        assert "power cut" in str(run(*command, code=1).exception)
    assert (tmp_path / "run" / "checkpoints/transfer/finished").is_dir() == (stage == "exposure")
    assert not (tmp_path / "run" / "model.safetensors").exists()

    assert isinstance(run(*command, code=1).exception, FileExistsError)
    steps = []

    def counted(self, *arguments):
        steps.append((self.args.output_dir.rpartition("/")[2], self.state.global_step))
        return step(self, *arguments)

    monkeypatch.setattr(MlaTrainer, "training_step", counted)
    run(*command, "--resume")
    left = [(stage, number) for number in range(2, 4 if stage == "transfer" else 5)]
    assert steps == left + ([("exposure", number) for number in range(5)] if stage == "transfer" else [])
    found, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", trained))
    assert found.keys() == expected.keys()
    assert all((found[name] == value).all() for name, value in expected.items())


def test_an_adapter_stands_beside_its_model(run, tmp_path):
    captions = shapes_captions()
    lines = ["de\ten", *map("\t".join, zip(captions["de"], captions["en"], strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    base, out = saved(tiny_siglip(), tmp_path / "base"), tmp_path / "out"
    settings = {
        "model.from_pretrained": base,
        "multilingual_tokenizer.from_pretrained": saved(tiny_bert(), tmp_path / "bert"),
        "train.text_text.source": tmp_path / "pairs.tsv",
        "training.max_steps": 2,
        "training.per_device_train_batch_size": 8,
        "training.use_cpu": "true",
        "training.precision": "float32",
    }
    run("train", "mla/adapter", *(f"--set={key}={value}" for key, value in settings.items()), "--output", out)
    english, after = (Embedder.from_pretrained(each).encode_text(["a red dog"]) for each in (base, out))
    np.testing.assert_array_equal(english, after)
    alone, whole = (Embedder.from_pretrained(each) for each in (out / "adapter", out))
    texts = captions["de"][:4]
    np.testing.assert_array_equal(alone.encode_text(texts, language="de"), whole.encode_text(texts, language="de"))
    card = (out / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "library_name: peft" in card and str(tmp_path) not in card
