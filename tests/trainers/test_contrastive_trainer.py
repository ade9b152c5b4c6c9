"""The trainer: what it learns, logs, keeps, refuses, and resumes."""

import json
import math
import os
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from babelens.data.batching.views import image_text_pairs
from babelens.trainers.checkpoints import is_complete, newest_checkpoint
from babelens.utils.errors import NonFiniteError, TrainingSetupError
from tests.support.forks import forked
from tests.support.tiny_training import VISION, assert_same, run_program, shapes_corpus, shapes_trainer, weights

PROGRAM = Path(__file__).parents[1] / "support" / "tiny_training.py"
TWO_RATES = {"image_text": 1e-3, "text_text": 1e-4}


# ---- Learning ----


def test_it_learns_both_tasks_and_keeps_the_best(tmp_path):
    trainer = shapes_trainer(
        tmp_path,
        max_steps=60,
        optim="adamw_torch",
        learning_rate=1e-2,
        dropout=0.0,
        seed=2,
        image_augmentation={"horizontal_flip": 0.0},
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="steps",
        save_steps=20,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="mean_recall",
        greater_is_better=True,
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert {"eval_mean_recall", "eval_mean_recall_en", "eval_mean_recall_de", "eval_mean_recall_fr"} <= after.keys()
    assert after["eval_mean_recall_en"] > before["eval_mean_recall_en"] + 20
    history = trainer.state.log_history
    for task, share in {"image_text": 0.7, "text_text": 0.95}.items():  # the margin keeps the text-text loss high
        losses = [entry[f"loss_{task}"] for entry in history if f"loss_{task}" in entry]
        assert len(losses) == 60
        assert np.mean(losses[-10:]) < share * np.mean(losses[:10])
    recalls = [entry["eval_mean_recall"] for entry in history if "eval_mean_recall" in entry][1:4]
    assert trainer.state.best_metric == max(recalls) == pytest.approx(after["eval_mean_recall"])
    assert Path(trainer.state.best_model_checkpoint) in list(tmp_path.glob("checkpoint-*"))


def test_the_loss_is_the_weighted_sum_of_the_tasks(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=1, task_weights={"text_text": 0.25})
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["loss"] == pytest.approx(logged["loss_image_text"] + 0.25 * logged["loss_text_text"], abs=1e-3)
    assert trainer.weights == {"image_text": 1.0, "text_text": 0.25}


def test_align_is_mural_without_the_text_text_task(tmp_path):
    trainer = shapes_trainer(tmp_path, tasks=("image_text",), max_steps=2)
    trainer.train()
    assert "loss_text_text" not in trainer.state.log_history[0]


def test_a_corpus_alone_is_the_first_task(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    alone = type(trainer)(
        model=trainer.model,
        args=trainer.args,
        processing_class=trainer.processing_class,
        train_dataset=shapes_corpus(),
    )
    assert list(alone.tasks) == ["image_text"]
    assert len(alone.tasks["image_text"]) == 48


def test_tasks_may_have_batches_of_their_own_sizes(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=2, task_batch_sizes={"text_text": 3}, embed_chunk_size=4)

    def sizes():
        return {
            task: batch["positives"].shape[-1] for task, batch in next(iter(trainer.get_train_dataloader())).items()
        }

    size = trainer.args.per_device_train_batch_size
    assert sizes() == {"image_text": size, "text_text": 3}
    trainer.train()
    assert trainer.state.max_steps == trainer.state.global_step == 2
    # As `auto_find_batch_size` does when memory runs out.
    trainer._train_batch_size = size // 2
    assert sizes() == {"image_text": size // 2, "text_text": 1}


def test_every_task_has_its_rate_and_its_state(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=2, task_learning_rates=TWO_RATES, warmup_steps=1)
    trainer.train()
    optimizer = trainer._task_optimizer
    assert list(optimizer.optimizers) == ["image_text", "text_text"]
    image_tower = next(trainer.model.vision_model.parameters())
    assert image_tower in optimizer.optimizers["image_text"].state
    assert image_tower not in optimizer.optimizers["text_text"].state
    rates = [optimizer.optimizers[task].param_groups[0]["initial_lr"] for task in TWO_RATES]
    assert rates == list(TWO_RATES.values())


def test_parts_of_the_model_have_their_rates(tmp_path):
    """A rate of zero keeps a part as it was; the schedule scales every rate."""
    trainer = shapes_trainer(tmp_path, max_steps=2, learning_rate_mapping={"vision_model": 0.0, "embeddings": 0.5})
    before = weights(trainer.model)
    trainer.train()
    after = weights(trainer.model)
    moved = {name for name, value in before.items() if not (value == after[name]).all()}
    assert moved
    assert not any("vision_model" in name for name in moved)
    peaks = {group["initial_lr"] for group in trainer.optimizer.param_groups}
    assert peaks == {trainer.args.learning_rate, 0.0, 0.5}


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_are_cut_in_other_ways_in_training(tmp_path, workers):
    """Of either task; a batch is the same with and without worker processes."""
    settings = {"dataloader_num_workers": workers}
    plain = next(iter(shapes_trainer(tmp_path, **settings).get_train_dataloader()))
    settings |= {"text_augmentation": {"subword_dropout": 1.0}}
    cut = next(iter(shapes_trainer(tmp_path, **settings).get_train_dataloader()))
    once_more = next(iter(shapes_trainer(tmp_path, **settings).get_train_dataloader()))
    for task, names in {"image_text": ["input_ids"], "text_text": ["input_ids", "paired_input_ids"]}.items():
        assert torch.equal(cut[task]["positives"], plain[task]["positives"])
        for name in names:
            assert torch.equal(cut[task][name], once_more[task][name])
            assert cut[task][name].shape[1] > plain[task][name].shape[1]


def test_texts_of_named_tasks_are_cut_in_other_ways(tmp_path):
    plain, cut = (
        next(iter(shapes_trainer(tmp_path, text_augmentation=augmentation).get_train_dataloader()))
        for augmentation in (None, {"subword_dropout": 1.0, "tasks": ["image_text"]})
    )
    assert cut["image_text"]["input_ids"].shape[1] > plain["image_text"]["input_ids"].shape[1]
    for name, value in plain["text_text"].items():
        assert torch.equal(cut["text_text"][name], value)


def test_the_vision_backbone_may_have_batch_norm(tmp_path):
    vision = {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
    }
    trainer = shapes_trainer(tmp_path, vision=vision, max_steps=2)
    assert math.isfinite(trainer.train().training_loss)


def test_equal_texts_are_positives_unless_the_run_says_otherwise(tmp_path):
    """Pairs with the same image always are."""
    examples = [
        {"image_id": image, "text": text, "language": "en", "image": shapes_corpus()[0]["image"]}
        for image, text in (("a", "one"), ("b", "one"), ("a", "two"))
    ]
    pairs = [
        {"text_a": one, "language_a": "en", "text_b": other, "language_b": "fr"}
        for one, other in (("one", "un"), ("one", "une"), ("one", "un"))
    ]
    found = {}
    for equal in (True, False):
        trainer = shapes_trainer(tmp_path, equal_texts_are_positives=equal)
        for task, rows in (("image_text", examples), ("text_text", pairs)):
            labels = trainer.make_collator(task)(rows, [0, 1, 2])["positives"]
            found[task, equal] = (labels[:, :, None] == labels[:, None]).any(0).int().tolist()
    assert found["image_text", True] == [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    assert found["image_text", False] == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert found["text_text", True] == [[1, 1, 1]] * 3
    assert found["text_text", False] == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]  # a repeated pair is not its own negative


# ---- Refusals ----


def test_an_unknown_task_is_refused(tmp_path):
    pairs = image_text_pairs(shapes_corpus(), ["en"])
    with pytest.raises(ValueError, match="MuralTrainer has no task 'image_txt'; its tasks are"):
        shapes_trainer(tmp_path, task_weights={"image_txt": 1.0})
    with pytest.raises(ValueError, match="no task 'image_txt'"):
        shapes_trainer(tmp_path, task_batch_sizes={"image_txt": 4})
    with pytest.raises(ValueError, match="no task 'image_txt'"):
        shapes_trainer(tmp_path, text_augmentation={"subword_dropout": 0.1, "tasks": ["image_txt"]})
    trainer = shapes_trainer(tmp_path)
    with pytest.raises(ValueError, match="no task 'images'"):
        type(trainer)(
            model=trainer.model,
            args=trainer.args,
            processing_class=trainer.processing_class,
            train_dataset={"image_text": pairs, "images": pairs},
        )


@pytest.mark.parametrize(
    "bad",
    [
        {"embed_chunk_size": 0},
        {"loss_tile_size": -1},
        {"task_weights": {"text_text": -1.0}},
        {"task_batch_sizes": {"text_text": 0}},
        {"task_batch_sizes": {"text_text": 2.5}},
        {"task_batch_sizes": {"text_text": "3"}},
        {"task_batch_sizes": 3},
        {"task_learning_rates": TWO_RATES, "precision": "float16"},
        {"task_learning_rates": TWO_RATES, "learning_rate_mapping": {"vision_model": 0.1}},
        {"task_weights": {"text_text": 0.1}, "task_learning_rates": TWO_RATES},
        {"task_weights": {"text_text": 0.0}, "task_learning_rates": TWO_RATES, "optim": "adamw_torch"},
        {"learning_rate_mapping": {"vision_model": -0.1}},
        {"text_augmentation": {"subword_dropout": 1.5}},
    ],
)
def test_impossible_arguments_are_refused(tmp_path, bad):
    with pytest.raises(ValueError, match="subword_dropout" if "text_augmentation" in bad else str(next(iter(bad)))):
        shapes_trainer(tmp_path, **bad)


def test_weights_of_tasks_count_with_one_optimizer(tmp_path):
    """LAMB divides a loss's scale away, if every task has a LAMB of its own."""

    def step(**settings):
        trainer = shapes_trainer(tmp_path, max_steps=1, dropout=0.0, **settings)
        before = weights(trainer.model)
        trainer.train()
        return {name: value - before[name] for name, value in weights(trainer.model).items()}

    def apart(one, other):
        return max(np.abs(one[name] - other[name]).max() for name in one)

    light, even = ({"task_weights": {"text_text": weight}} for weight in (0.1, 1.0))
    assert apart(step(**light), step(**even)) > 1e-5
    with pytest.raises(TrainingSetupError, match="'lamb' do not depend on the scale of the loss"):
        shapes_trainer(tmp_path, task_learning_rates=TWO_RATES, **light)
    for settings in (even, {}, light | {"optim": "sgd"}):
        assert shapes_trainer(tmp_path, task_learning_rates=TWO_RATES, **settings)


def test_nan_stops_the_run_before_it_reaches_the_weights(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=5)
    clean = weights(trainer.model)
    objective = trainer.model.contrastive_objective
    calls = []

    def poisoned(output, **options):
        calls.append(1)
        return objective(output, **options) * (math.nan if len(calls) == 3 else 1.0)

    trainer.model.contrastive_objective = poisoned
    with pytest.raises(NonFiniteError, match="task 'image_text' is nan in step 2"):
        trainer.train()
    assert trainer.state.global_step == 1
    after = weights(trainer.model)
    assert all(np.isfinite(value).all() for value in after.values())
    assert any(not np.array_equal(after[name], clean[name]) for name in clean)


# ---- Resuming ----


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"task_learning_rates": TWO_RATES, "task_batch_sizes": {"text_text": 3}},
        {"embed_chunk_size": 3, "gradient_accumulation_steps": 2, "optim": "adamw_torch", "dataloader_num_workers": 1},
    ],
    ids=["lamb with two rates", "cached, accumulated, workers"],
)
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, settings):
    """Dropout, random crops and several epochs are in it; the kill is a real SIGKILL between two checkpoints."""
    settings = {"max_steps": 11, "save_strategy": "steps", "save_steps": 3, **settings}
    given = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
    run_program(PROGRAM, tmp_path / "unbroken", *given)
    killed = run_program(PROGRAM, tmp_path / "killed", "--die-at=8", *given, check=False)
    assert killed.returncode == -9
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-6"
    assert not (tmp_path / "killed" / "weights.npz").exists()
    run_program(PROGRAM, tmp_path / "killed", "--resume", *given)
    assert_same(np.load(tmp_path / "killed" / "weights.npz"), np.load(tmp_path / "unbroken" / "weights.npz"))


def test_a_torn_checkpoint_is_neither_resumed_nor_kept(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    trainer.train()
    torn = tmp_path / "checkpoint-4"
    (torn / "optimizer.pt").write_bytes((torn / "optimizer.pt").read_bytes()[:100])
    resumed = shapes_trainer(tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    resumed.train(resume_from_checkpoint=True)
    assert is_complete(torn)
    assert_same(weights(resumed.model), weights(trainer.model))


def test_resuming_from_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no complete checkpoint"):
        shapes_trainer(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("limit", [50_000, 150_000], ids=["weights", "optimizer"])
def test_a_full_disk_leaves_no_half_written_checkpoint(tmp_path, limit):
    """A limit on the size of files stands in for the full disk: the system refuses the write in the same place. It is
    that of a process of its own, a fork of this one."""
    output, told = tmp_path / "run", tmp_path / "told"
    output.mkdir()
    if (child := forked()) == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            shapes_trainer(output, max_steps=2, save_strategy="steps", save_steps=1).train()
        except BaseException as error:
            told.write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert re.match(r"SaveError: .*could not save to .*and nothing of it was left there", told.read_text())
    assert [path.name for path in output.iterdir()] == []


# ---- Several processes ----


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_batch(tmp_path):
    given = [
        "--set=max_steps=4",
        "--set=optim=sgd",
        "--set=learning_rate=0.1",
        f"--set=vision={json.dumps({**VISION, 'attention_dropout': 0.0})}",
    ]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    run_program(
        PROGRAM,
        tmp_path / "two",
        *given,
        "--set=per_device_train_batch_size=4",
        "--set=dropout=0.0",
        launcher=launcher,
    )
    run_program(PROGRAM, tmp_path / "one", *given, "--set=per_device_train_batch_size=8", "--set=dropout=0.0")
    one, two = (np.load(tmp_path / name / "weights.npz") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(torch.tensor(two[name]), torch.tensor(one[name]), atol=1e-5, rtol=1e-4, msg=name)


class ScheduleFree(torch.optim.SGD):
    """An optimizer that, as schedule-free ones do, steps in training mode alone."""

    is_training = False

    def train(self):
        self.is_training = True

    def eval(self):
        self.is_training = False

    def step(self, closure=None):
        assert self.is_training
        super().step(closure)


def test_optimizers_that_have_modes_are_in_the_right_one(tmp_path):
    seen = []
    settings = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 2}
    trainer = shapes_trainer(tmp_path, **settings)
    optimizer = ScheduleFree(trainer.model.parameters(), lr=0.01)
    trainer.optimizer = optimizer
    measure, save = trainer.measure, trainer._save
    trainer.measure = lambda data: seen.append(optimizer.is_training) or measure(data)
    trainer._save = lambda *arguments: seen.append(optimizer.is_training) or save(*arguments)
    trainer.train()
    assert seen == [False] * len(seen) and len(seen) >= 4
    assert not optimizer.is_training


@pytest.mark.parametrize("optim", ["lomo", "adalomo"])
def test_optimizers_that_step_in_every_backward_pass_are_refused(tmp_path, optim):
    with pytest.raises(TrainingSetupError, match=optim):
        shapes_trainer(tmp_path, optim=optim)


def test_rates_of_tasks_need_optimizers_that_can_share_weights(tmp_path):
    with pytest.raises(TrainingSetupError, match="schedule_free_adamw"):
        shapes_trainer(tmp_path, optim="schedule_free_adamw", task_learning_rates={"image_text": 1e-3})
