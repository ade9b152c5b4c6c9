"""Checkpoints that are whole or do not count."""

import json

import pytest
from tiny_training import shapes_trainer

from babelens.configuration.errors import ChangedRunError, DamagedCheckpointError, TrainingSetupError
from babelens.trainers.checkpoints import (
    check_undamaged,
    is_complete,
    mark_complete,
    newest_checkpoint,
    remove_torn_checkpoints,
)
from babelens.trainers.precision import RunConditions, compare_conditions


def _checkpoint(folder, step, complete=True):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_text("w" * step)
    if complete:
        mark_complete(path)
    return path


def test_the_newest_complete_checkpoint_is_found(tmp_path):
    _checkpoint(tmp_path, 5)
    newest = _checkpoint(tmp_path, 10)
    torn = _checkpoint(tmp_path, 100, complete=False)
    assert newest_checkpoint(tmp_path) == newest
    assert remove_torn_checkpoints(tmp_path) == [torn]
    assert not torn.exists()


def test_none_where_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path / "missing") is None


def test_a_file_that_was_cut_off_spoils_the_checkpoint(tmp_path, caplog):
    path = _checkpoint(tmp_path, 5)
    (path / "weights").write_text("w")
    assert not is_complete(path)
    assert newest_checkpoint(tmp_path) is None
    assert "checkpoint-5 was complete, and lacks files or has them in other sizes; it is skipped" in caplog.text
    (path / "weights").unlink()
    assert not is_complete(path)


def test_a_changed_bit_is_noticed_before_a_run_goes_on(tmp_path):
    older, newest = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    content = bytearray((newest / "weights").read_bytes())
    content[3] ^= 1
    (newest / "weights").write_bytes(content)
    assert is_complete(newest)  # by its sizes
    with pytest.raises(DamagedCheckpointError, match="checkpoint-10 is damaged, and not what was saved: weights"):
        check_undamaged(newest)
    assert newest_checkpoint(tmp_path) == older
    assert remove_torn_checkpoints(tmp_path, resumed=older) == [newest]


def test_a_file_of_zeros_is_noticed(tmp_path, caplog):
    older, newest = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    (newest / "weights").write_bytes(bytes(10))
    assert newest_checkpoint(tmp_path) == older
    assert "checkpoint-10 is damaged, and not what was saved: weights; it is skipped" in caplog.text


def test_damage_to_all_of_them_is_not_passed_over(tmp_path):
    (_checkpoint(tmp_path, 5) / "weights").write_bytes(bytes(5))
    with pytest.raises(DamagedCheckpointError, match="no other checkpoint to resume from"):
        newest_checkpoint(tmp_path)


def test_checkpoints_of_earlier_versions_count(tmp_path):
    """Their list has sizes alone."""
    path = _checkpoint(tmp_path, 5, complete=False)
    (path / "complete.json").write_text(json.dumps({"weights": 5}))
    assert newest_checkpoint(tmp_path) == path
    (path / "complete.json").write_text(json.dumps({"weights": 6}))
    assert newest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", "null", "\0" * 20, '{"weights": "5"}', '{"weights": {}}'])
def test_a_damaged_list_is_none(tmp_path, content):
    (_checkpoint(tmp_path, 5) / "complete.json").write_text(content)
    assert newest_checkpoint(tmp_path) is None


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
