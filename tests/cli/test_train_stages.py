"""`babelens train` with stages: each goes on from the one before, and a run that broke off from where it was."""

import json
import shutil

import pytest
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.trainers.mla import MlaTrainer
from babelens.training.schema import load_recipe
from babelens.utils.errors import RecipeError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """MLA on a tiny CLIP: transfer to German and French, then exposure."""
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    saved(tiny_clip(), folder / "clip")
    content = {
        "method": "mla",
        "model": {
            "from_pretrained": str(folder / "clip"),
            "overrides": {"languages": ["de", "fr"], "acquirer_size": 8, "embedding_size": 12},
        },
        "multilingual_tokenizer": {"vocab_size": 200},
        "train": {
            "text_text": {"source": str(folder / "pairs.tsv"), "license": "CC0-1.0"},
            "image_text": {"source": str(folder), "languages": ["de", "fr"], "license": "CC0-1.0"},
        },
        "training": {
            "per_device_train_batch_size": 4,
            "max_steps": 4,
            "learning_rate": 1e-3,
            "save_strategy": "steps",
            "save_steps": 2,
            "logging_steps": 1,
            "report_to": "none",
            "use_cpu": True,
        },
        "stages": [
            {"name": "transfer", "tasks": ["text_text"]},
            {"name": "exposure", "tasks": ["image_text", "text_text"], "training": {"max_steps": 5}},
        ],
    }
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def train(recipe, output, *arguments, **options):
    return CliRunner().invoke(app, ["train", str(recipe), "--output", str(output), *arguments], **options)


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "mla-shapes"
    done = train(recipe, folder, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def test_the_folder_is_a_model(trained):
    model, processor = AutoModel.from_pretrained(trained), AutoProcessor.from_pretrained(trained)
    assert model.config.known_languages == ["en", "de", "fr"]
    inputs = processor(text=["forme rouge", "a dot"], language=["fr", "en"], return_tensors="pt")
    assert model.get_text_features(**inputs).pooler_output.shape == (2, 16)
    card = (trained / "README.md").read_text()
    assert all(f"- {tag}" in card for tag in ("en", "de", "fr"))


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


@pytest.mark.parametrize("stage", ["transfer", "exposure"])
def test_a_run_that_broke_off_resumes_in_its_stage(recipe, trained, tmp_path, monkeypatch, stage):
    step = MlaTrainer.training_step

    def failing(self, model, inputs, *arguments):
        if self.args.output_dir.endswith(stage) and self.state.global_step == 3:
            raise RuntimeError("power cut")
        return step(self, model, inputs, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(MlaTrainer, "training_step", failing)
        assert "power cut" in str(train(recipe, tmp_path / "run").exception)
    assert (tmp_path / "run" / "checkpoints/transfer/finished").is_dir() == (stage == "exposure")
    assert not (tmp_path / "run" / "model.safetensors").exists()

    assert isinstance(train(recipe, tmp_path / "run").exception, FileExistsError)
    steps = []

    def counted(self, *arguments):
        steps.append((self.args.output_dir.rpartition("/")[2], self.state.global_step))
        return step(self, *arguments)

    monkeypatch.setattr(MlaTrainer, "training_step", counted)
    assert train(recipe, tmp_path / "run", "--resume", catch_exceptions=False).exit_code == 0
    left = [(stage, number) for number in range(2, 4 if stage == "transfer" else 5)]
    assert steps == left + ([("exposure", number) for number in range(5)] if stage == "transfer" else [])
    found, expected = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", trained))
    assert found.keys() == expected.keys()
    assert all((found[name] == value).all() for name, value in expected.items())


def test_a_finished_stage_is_not_taken_over_unasked(recipe, tmp_path):
    """Even where it left no checkpoint."""
    output = tmp_path / "run"
    given = ["--set", "training.save_strategy='no'"]
    assert train(recipe, output, *given, catch_exceptions=False).exit_code == 0
    again = train(recipe, output, *given, "--set", "training.learning_rate=0.1")
    assert isinstance(again.exception, FileExistsError)


@pytest.mark.parametrize(
    "stages",
    [
        [{"name": "a", "tasks": ["text_text"], "trainin": {}}],
        [{"tasks": ["text_text"]}],
        [{"name": "", "tasks": ["text_text"]}],
        [{"name": "a", "tasks": []}],
    ],
)
def test_a_mistake_in_a_stage_is_named(recipe, stages):
    with pytest.raises(RecipeError, match=r"stages\.0"):
        load_recipe(recipe, {"stages": stages})


def test_a_mistake_in_a_stages_arguments_is_named_before_anything_is_trained(recipe, tmp_path):
    stages = [
        {"name": "a", "tasks": ["text_text"]},
        {"name": "b", "tasks": ["text_text"], "training": {"max_stepps": 3}},
    ]
    done = train(recipe, tmp_path / "run", "--set", f"stages={json.dumps(stages)}")
    assert isinstance(done.exception, RecipeError) and "stages.b" in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_a_task_that_mla_does_not_have_is_named(recipe, tmp_path):
    source = load_recipe(recipe).train["text_text"].source
    added = ["--set", f"train.translation={json.dumps({'source': source})}"]
    stages = [{"name": "a", "tasks": ["translation"]}]
    done = train(recipe, tmp_path / "run", *added, "--set", f"stages={json.dumps(stages)}")
    assert isinstance(done.exception, RecipeError) and "mla has no such task" in str(done.exception)


def test_a_stage_that_goes_on_from_another_machines_says_so(recipe, trained, tmp_path, caplog):
    """The second stage begins anew: what the first was trained with is in the state of its end."""
    output = tmp_path / "mla-shapes"
    shutil.copytree(trained, output)
    shutil.rmtree(output / "checkpoints" / "exposure")
    file = output / "checkpoints" / "transfer" / "finished" / "trainer_state.json"
    state = json.loads(file.read_text())
    state["stateful_callbacks"]["RunConditions"]["attributes"]["conditions"]["number of processes"] = 2
    file.write_text(json.dumps(state))
    done = train(recipe, output, "--resume", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "number of processes: 2, now 1" in caplog.text
