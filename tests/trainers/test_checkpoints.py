import errno
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from babelens.model_folders import atomic_directory
from babelens.trainers.checkpoints import CheckpointMarks, is_complete, newest_checkpoint
from babelens.utils.errors import InputError, SaveError
from tests.support.killed_saving import killed_at_each_operation
from tests.support.tiny_training import PoisonGradient, assert_same, shapes_trainer, weights

EACH_STEP = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
TWO_RATES = {"task_learning_rates": {"image_text": 1e-3, "text_text": 1e-4}}


def _checkpoint(folder, step, complete=True, run="run"):
    marks, path = CheckpointMarks(), folder / f"checkpoint-{step}"
    marks.run = run
    marks.begin(path)
    (path / "weights").write_text("w" * step)
    if complete:
        marks.mark()
    return path


def _names(folder):
    return sorted(path.name for path in folder.glob("*checkpoint-*"))


def test_the_newest_complete_checkpoint_is_found(tmp_path, caplog):
    assert newest_checkpoint(tmp_path / "missing") is None
    _checkpoint(tmp_path, 5)
    newest = _checkpoint(tmp_path, 10)
    _checkpoint(tmp_path, 100, complete=False)
    (tmp_path / "checkpoint-200").mkdir()
    assert newest_checkpoint(tmp_path) == newest
    assert "checkpoint-100" in caplog.text and "checkpoint-200" in caplog.text


@pytest.mark.parametrize("damage", ["cut", "[]"])
def test_a_damaged_checkpoint_does_not_count(tmp_path, damage):
    path = _checkpoint(tmp_path, 5)
    (path / ("weights" if damage == "cut" else "complete.json")).write_text(damage)
    assert not is_complete(path) and newest_checkpoint(tmp_path) is None


def test_resuming_from_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no complete checkpoint"):
        shapes_trainer(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed"])
def test_divided_weights_are_refused(tmp_path, kind):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    setattr(trainer, f"is_{kind}_enabled", True)
    with pytest.raises(InputError, match="DeepSpeed"):
        trainer.train()


def _trained_by_others(folder, steps=(1, 2, 3, 500)):
    """Checkpoints of stock `Trainer`, without a mark."""
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "model.safetensors").write_text(f"mine, {step}")


def test_checkpoints_of_others_are_never_deleted(tmp_path):
    """Neither at the start, nor by `save_total_limit`, nor where one has the number of a step that is saved."""
    _trained_by_others(tmp_path)
    later = _checkpoint(tmp_path, 70, run="another")
    shapes_trainer(tmp_path, **EACH_STEP, save_total_limit=1).train()
    assert is_complete(later)
    assert (tmp_path / "checkpoint-500" / "model.safetensors").read_text() == "mine, 500"
    for step in (1, 2, 3):
        assert (tmp_path / f"kept-checkpoint-{step}" / "model.safetensors").read_text() == f"mine, {step}"
    assert newest_checkpoint(tmp_path).name == "checkpoint-70"
    assert not (tmp_path / "checkpoint-1").exists() and not (tmp_path / "checkpoint-2").exists()
    assert is_complete(tmp_path / "checkpoint-3")


def test_a_resumed_run_deletes_its_own_older_checkpoints(tmp_path):
    _checkpoint(tmp_path, 2, complete=False, run="killed")
    shapes_trainer(tmp_path, **EACH_STEP, save_total_limit=2).train()
    assert _names(tmp_path) == ["checkpoint-2", "checkpoint-3"]
    assert not (tmp_path / "checkpoint-2" / "weights").exists()
    more = EACH_STEP | {"max_steps": 5, "save_total_limit": 2}
    shapes_trainer(tmp_path, **more).train(resume_from_checkpoint=True)
    assert _names(tmp_path) == ["checkpoint-4", "checkpoint-5"]


def test_a_checkpoint_without_a_mark_is_resumed_from_where_it_is_named(tmp_path):
    """Stock `Trainer` writes such checkpoints: they are loaded, and not changed."""
    unbroken = shapes_trainer(tmp_path / "unbroken", **EACH_STEP)
    unbroken.train()
    stock = tmp_path / "resumed" / "checkpoint-2"
    shutil.copytree(tmp_path / "unbroken" / "checkpoint-2", stock)
    (stock / "complete.json").unlink()
    before = {path.name: path.read_bytes() for path in stock.iterdir()}
    resumed = shapes_trainer(tmp_path / "resumed", **EACH_STEP, save_total_limit=1)
    resumed.train(resume_from_checkpoint=str(stock))
    assert {path.name: path.read_bytes() for path in stock.iterdir()} == before
    assert_same(weights(resumed.model), weights(unbroken.model))


def test_the_hub_gets_a_checkpoint_with_its_mark(tmp_path, monkeypatch):
    pushed = []

    class Push(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            args.push_to_hub = control.should_save

    trainer = shapes_trainer(tmp_path, **EACH_STEP)
    trainer.add_callback(Push)

    def push(folder):
        trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
        pushed.append(is_complete(folder))
        trainer.args.push_to_hub = False

    monkeypatch.setattr(trainer, "_push_from_checkpoint", push)
    trainer.train()
    assert pushed == [True] * 3


def test_another_optimizer_cannot_continue(tmp_path):
    settings = EACH_STEP | {"max_steps": 2, "optim": "adamw_torch"}
    shapes_trainer(tmp_path, **settings).train()
    more = settings | {"max_steps": 3}
    with pytest.raises(InputError, match=r"optim: .* adamw_torch, and lamb"):
        shapes_trainer(tmp_path, **more | {"optim": "lamb"}).train(resume_from_checkpoint=True)
    shapes_trainer(tmp_path, **more | {"optim": "adamw_torch_fused"}).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    "settings",
    [{"gradient_accumulation_steps": 2, "embed_chunk_size": 3}, TWO_RATES],
    ids=["accumulated chunks", "two optimizers"],
)
def test_a_non_finite_gradient_stops_before_the_weights(tmp_path, settings):
    trainer = shapes_trainer(tmp_path, max_steps=3, save_strategy="steps", save_steps=1, **settings)
    poison = PoisonGradient(step=3)
    trainer.add_callback(poison)
    with pytest.raises(InputError, match=r"norm is nan .* stopped before it reached the weights"):
        trainer.train()
    assert_same(weights(trainer.model), poison.before)
    newest = newest_checkpoint(tmp_path)
    assert newest.name == "checkpoint-2"
    assert_same(load_file(newest / "model.safetensors"), {k: torch.from_numpy(v) for k, v in poison.before.items()})


def test_a_non_finite_loss_stops_before_the_weights(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=5)
    objective, calls = trainer.model.contrastive_objective, []

    def poisoned(output, **options):
        calls.append(1)
        return objective(output, **options) * (math.nan if len(calls) == 3 else 1.0)

    trainer.model.contrastive_objective = poisoned
    with pytest.raises(InputError, match="task 'image_text' is nan in step 2"):
        trainer.train()
    assert trainer.state.global_step == 1
    assert all(torch.isfinite(value).all() for value in trainer.model.state_dict().values())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    trainer = shapes_trainer(tmp_path / "run")
    trainer.save_model(tmp_path / "older")
    before = (tmp_path / "older" / "model.safetensors").read_bytes()
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.inf)
    with pytest.raises(InputError, match="after step 0"):
        trainer.save_model(tmp_path / "older")
    assert (tmp_path / "older" / "model.safetensors").read_bytes() == before


OLD = {
    "config.json": "old",
    "model.safetensors": "old",
    "tokenizer.json": "old",
    "features.safetensors": "kept",
    "checkpoints/checkpoint-1/model.safetensors": "kept",
}
NEW = {
    "config.json": "new",
    "model.safetensors.index.json": "new",
    "model-00001-of-00002.safetensors": "new",
    "tokenizer.json": "new",
    "code/modeling.py": "new",
}
REPLACED = {name: OLD[name] for name in OLD if name != "model.safetensors"} | NEW


def _write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _seen(folder):
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {str(file): (folder / file).read_text() for file in files if not file.parts[0].startswith(".")}


def _save(folder, files=NEW):
    with atomic_directory(folder) as scratch:
        _write(scratch, files)


def test_a_block_that_ends_well_replaces_a_model_and_keeps_other_files(tmp_path):
    _write(tmp_path / "model", OLD)
    _save(tmp_path / "model", {"report.json": "new"})
    assert _seen(tmp_path / "model") == OLD | {"report.json": "new"}
    _save(tmp_path / "model")
    assert _seen(tmp_path / "model") == REPLACED | {"report.json": "new"}
    assert not [path for path in (tmp_path / "model").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("error", [Exception("No space left (os error 28)"), ValueError()])
def test_a_block_that_fails_leaves_what_was_there(tmp_path, error):
    """The first one is how tokenizers raises it."""
    _write(tmp_path / "model", OLD)
    for folder in (tmp_path / "model", tmp_path / "deep" / "model"):
        kind = ValueError if isinstance(error, ValueError) else OSError
        with pytest.raises(kind) as raised, atomic_directory(folder) as scratch:
            _write(scratch, NEW)
            raise error
        if raised.type is not ValueError:
            assert raised.value.errno == 28 and f"{folder} could not be written" in str(raised.value)
    assert _seen(tmp_path / "model") == OLD and not (tmp_path / "deep").exists()


@pytest.mark.slow
def test_a_killed_save_is_the_old_model_or_the_new_one_or_none(tmp_path):
    folder, found = tmp_path / "model", set()

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, OLD)

    for _ in killed_at_each_operation(lambda: _save(folder), prepare):
        seen = _seen(folder)
        found.add(seen.get("config.json"))
        if "config.json" in seen:
            assert seen == (OLD if seen["config.json"] == "old" else REPLACED)
        _save(folder)
        assert _seen(folder) == REPLACED
    assert found == {None, "old", "new"}


def test_a_full_disk_leaves_no_half_written_checkpoint(tmp_path, monkeypatch):
    """The weights are written, and the optimizer's state is not."""

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(SaveError, match="checkpoint-1 could not be written, and nothing was left") as raised:
        shapes_trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1).train()
    assert raised.value.errno == errno.ENOSPC and list(tmp_path.iterdir()) == []
