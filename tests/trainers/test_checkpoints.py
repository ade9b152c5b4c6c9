"""Checkpoints that are complete or do not count, and folders that a training must leave alone."""

import json
import shutil

import pytest
from transformers import TrainerCallback

from babelens.trainers.checkpoints import is_complete, make_checkpoint, mark_complete, newest_checkpoint
from babelens.trainers.precision import RunConditions, compare_conditions
from babelens.utils.errors import ChangedRunError, TrainingSetupError
from tests.support.tiny_training import shapes_trainer, weights

EACH_STEP = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}


def _checkpoint(folder, step, complete=True, run="run"):
    path = folder / f"checkpoint-{step}"
    make_checkpoint(path, run)
    (path / "weights").write_text("w" * step)
    if complete:
        mark_complete(path)
    return path


def _names(folder):
    return sorted(path.name for path in folder.glob("*checkpoint-*"))


def test_the_newest_complete_checkpoint_is_found(tmp_path, caplog):
    _checkpoint(tmp_path, 5)
    newest = _checkpoint(tmp_path, 10)
    _checkpoint(tmp_path, 100, complete=False)
    (tmp_path / "checkpoint-200").mkdir()
    assert newest_checkpoint(tmp_path) == newest
    assert _names(tmp_path) == ["checkpoint-10", "checkpoint-100", "checkpoint-200", "checkpoint-5"]
    assert "checkpoint-100" in caplog.text and "checkpoint-200" in caplog.text


def test_none_where_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path / "missing") is None


def test_a_file_that_was_cut_off_spoils_the_checkpoint(tmp_path, caplog):
    path = _checkpoint(tmp_path, 5)
    (path / "weights").write_text("w")
    assert not is_complete(path)
    assert newest_checkpoint(tmp_path) is None
    assert "checkpoint-5" in caplog.text
    (path / "weights").unlink()
    assert not is_complete(path)


@pytest.mark.parametrize("content", ["", "[]", "null", "\0" * 20, '{"weights": 5}', '{"files": {"weights": "5"}}'])
def test_a_damaged_list_is_none(tmp_path, content):
    (_checkpoint(tmp_path, 5) / "complete.json").write_text(content)
    assert newest_checkpoint(tmp_path) is None


# ---- What a training deletes ----


def _trained_by_others(folder, steps=(1, 2, 3, 500)):
    """Checkpoints of another program: the files of stock `Trainer`, without a mark."""
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "model.safetensors").write_text(f"mine, {step}")


def test_checkpoints_of_others_are_never_deleted(tmp_path):
    """Neither at the start, nor by `save_total_limit`, nor where one has the number of a step that is saved."""
    _trained_by_others(tmp_path)
    (tmp_path / "checkpoint-notes.txt").write_text("mine")
    shapes_trainer(tmp_path, **EACH_STEP, save_total_limit=1).train()
    assert (tmp_path / "checkpoint-500" / "model.safetensors").read_text() == "mine, 500"
    assert (tmp_path / "checkpoint-notes.txt").read_text() == "mine"
    for step in (1, 2, 3):
        assert (tmp_path / f"kept-checkpoint-{step}" / "model.safetensors").read_text() == f"mine, {step}"
    assert newest_checkpoint(tmp_path).name == "checkpoint-3"
    assert not (tmp_path / "checkpoint-1").exists() and not (tmp_path / "checkpoint-2").exists()


def test_checkpoints_of_another_run_are_kept(tmp_path):
    other = _checkpoint(tmp_path, 1, run="another")
    later = _checkpoint(tmp_path, 70, run="another")
    shapes_trainer(tmp_path, **EACH_STEP, save_total_limit=1).train()
    assert is_complete(later)
    assert (tmp_path / f"kept-{other.name}" / "weights").read_text() == "w"


def test_a_limit_of_one_with_the_best_model_deletes_none_of_others(tmp_path):
    """Trainer deletes all but the best one when the training ends."""
    _trained_by_others(tmp_path, [400, 500])
    settings = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "mean_recall"}
    trainer = shapes_trainer(
        tmp_path, **EACH_STEP, **settings, load_best_model_at_end=True, save_total_limit=1, greater_is_better=True
    )
    trainer.train()
    best = trainer.state.best_model_checkpoint.rpartition("/")[2]
    assert _names(tmp_path) == sorted({best, "checkpoint-400", "checkpoint-500"})


def test_a_resumed_run_deletes_its_own_older_checkpoints(tmp_path):
    settings = EACH_STEP | {"save_total_limit": 2}
    shapes_trainer(tmp_path, **settings).train()
    assert _names(tmp_path) == ["checkpoint-2", "checkpoint-3"]
    shapes_trainer(tmp_path, **settings | {"max_steps": 5}).train(resume_from_checkpoint=True)
    assert _names(tmp_path) == ["checkpoint-4", "checkpoint-5"]


def test_what_a_killed_run_was_saving_is_replaced(tmp_path):
    _checkpoint(tmp_path, 2, complete=False, run="killed")
    shapes_trainer(tmp_path, **EACH_STEP).train()
    assert _names(tmp_path) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert not (tmp_path / "checkpoint-2" / "weights").exists()


def test_a_checkpoint_without_a_mark_is_resumed_from_where_it_is_named(tmp_path):
    """As stock Trainer writes them: it is loaded, and left as it is."""
    unbroken = shapes_trainer(tmp_path / "unbroken", **EACH_STEP)
    unbroken.train()
    stock = tmp_path / "resumed" / "checkpoint-2"
    shutil.copytree(tmp_path / "unbroken" / "checkpoint-2", stock)
    (stock / "complete.json").unlink()
    before = {path.name: path.read_bytes() for path in stock.iterdir()}
    resumed = shapes_trainer(tmp_path / "resumed", **EACH_STEP, save_total_limit=1)
    resumed.train(resume_from_checkpoint=str(stock))
    assert {path.name: path.read_bytes() for path in stock.iterdir()} == before
    expected = weights(unbroken.model)
    assert all((value == expected[name]).all() for name, value in weights(resumed.model).items())
    assert newest_checkpoint(tmp_path / "resumed").name == "checkpoint-3"


def test_the_hub_gets_a_checkpoint_with_its_mark(tmp_path):
    pushed = {}

    class Push(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            trainer.args.push_to_hub = control.should_save

    trainer = shapes_trainer(tmp_path, **EACH_STEP)
    trainer.add_callback(Push)

    def push(folder):
        trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
        pushed[folder] = is_complete(folder)
        trainer.args.push_to_hub = False

    trainer._push_from_checkpoint = push
    trainer.train()
    assert list(pushed.values()) == [True] * 3


# ---- What has changed since ----


@pytest.mark.parametrize(
    ("then", "named"),
    [
        ({"number of processes": 2}, "number of processes: 2, now 1"),
        ({"device": "cuda"}, "device: cuda, now cpu"),
        ({"version of torch": "1.0"}, "version of torch: 1.0, now"),
        ({"version of transformers": "4.0"}, "version of transformers: 4.0, now"),
        ({}, None),
    ],
)
def test_a_resumed_run_names_what_it_is_computed_with_now(tmp_path, caplog, then, named):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    shapes_trainer(tmp_path, **settings).train()
    file = tmp_path / "checkpoint-1" / "trainer_state.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    conditions = state["stateful_callbacks"]["RunConditions"]["attributes"]["conditions"]
    assert conditions["number of examples in a step"] == 8
    conditions |= then
    file.write_text(json.dumps(state), encoding="utf-8")
    args = shapes_trainer(tmp_path, **settings).args
    compare_conditions(tmp_path / "checkpoint-1", args)
    warned = [record.getMessage() for record in caplog.records if "with another" in record.getMessage()]
    assert len(warned) == (named is not None)
    assert named is None or named in warned[0]


def test_resuming_with_other_batches_or_optimizer_is_told(tmp_path, caplog):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "optim": "adamw_torch"}
    shapes_trainer(tmp_path, **settings).train()
    more = settings | {"max_steps": 3, "gradient_accumulation_steps": 2}
    with pytest.raises(ChangedRunError, match=r"optim: .* adamw_torch, and adamax"):
        shapes_trainer(tmp_path, **more | {"optim": "adamax"}).train(resume_from_checkpoint=True)
    shapes_trainer(tmp_path, **more | {"optim": "adamw_torch_fused"}).train(resume_from_checkpoint=True)
    assert "number of examples in a step: 8, now 16; optimizer: adamw_torch, now adamw_torch_fused" in caplog.text


@pytest.mark.parametrize(("then", "now"), [("lamb", "adamw_torch"), ("adamw_torch", "lamb")])
@pytest.mark.parametrize("rates", [None, {"image_text": 1e-3}], ids=["one optimizer", "of each task"])
def test_moments_of_lamb_are_of_no_use_to_others(tmp_path, monkeypatch, then, now, rates):
    """In checkpoints of earlier versions, which do not name the optimizer: LAMB was the default."""
    monkeypatch.setattr(RunConditions, "state", lambda self: {"args": {}, "attributes": {}})
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "task_learning_rates": rates}
    shapes_trainer(tmp_path, optim=then, **settings).train()
    with pytest.raises(TrainingSetupError, match="optim"):
        shapes_trainer(tmp_path, optim=now, **settings | {"max_steps": 3}).train(resume_from_checkpoint=True)
