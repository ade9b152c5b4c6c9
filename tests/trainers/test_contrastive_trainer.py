from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.tiny_training import shapes_corpus, shapes_trainer

TWO_RATES = {"image_text": 1e-3, "text_text": 1e-4}


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


def test_a_corpus_alone_is_the_first_task(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=1)
    parts = {"model": trainer.model, "args": trainer.args, "processing_class": trainer.processing_class}
    alone = type(trainer)(**parts, train_dataset=shapes_corpus())
    assert {task: len(view) for task, view in alone.tasks.items()} == {"image_text": 48}
    alone.train()
    assert "loss_text_text" not in alone.state.log_history[0]  # MURAL without the text-text task is ALIGN


def test_nothing_is_read_before_the_training(tmp_path, monkeypatch):
    def read(self, *arguments):
        raise AssertionError("the data are read")

    with monkeypatch.context() as patched:
        patched.setattr("babelens.trainers.contrastive.ContrastiveTrainer.prepare", read)
        patched.setattr("babelens.trainers.contrastive.ensure_corpus", read)
        trainer = shapes_trainer(tmp_path, max_steps=1, freeze=("image",), cache_dir=str(tmp_path / "features"))
    assert not (tmp_path / "features").exists()
    trainer.train()
    assert (tmp_path / "features").exists()


def test_tasks_may_have_batches_of_their_own_sizes(tmp_path):
    trainer = shapes_trainer(tmp_path, max_steps=2, task_batch_sizes={"text_text": 3}, embed_chunk_size=4)

    def sizes():
        batch = next(iter(trainer.get_train_dataloader()))
        return {task: inputs["positives"].shape[-1] for task, inputs in batch.items()}

    assert sizes() == {"image_text": 8, "text_text": 3}
    trainer.train()
    assert trainer.state.global_step == 2
    trainer._train_batch_size = 4  # as `auto_find_batch_size` does when memory runs out
    assert sizes() == {"image_text": 4, "text_text": 1}


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_are_cut_in_other_ways_in_training(tmp_path, workers):
    """Only in the named tasks; a batch is the same with and without worker processes."""
    cut = {"subword_dropout": 1.0, "tasks": ["image_text"]}
    trainers = [
        shapes_trainer(tmp_path, dataloader_num_workers=workers, text_augmentation=each) for each in (None, cut, cut)
    ]
    plain, first, again = (next(iter(trainer.get_train_dataloader())) for trainer in trainers)
    assert torch.equal(first["image_text"]["positives"], plain["image_text"]["positives"])
    assert torch.equal(first["image_text"]["input_ids"], again["image_text"]["input_ids"])
    assert first["image_text"]["input_ids"].shape[1] > plain["image_text"]["input_ids"].shape[1]
    for name, value in plain["text_text"].items():
        assert torch.equal(first["text_text"][name], value)


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
            labels = trainer.mixture.collators[task](rows, [0, 1, 2])["positives"]
            found[task, equal] = (labels[:, :, None] == labels[:, None]).any(0).int().tolist()
    assert found["image_text", True] == [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    assert found["image_text", False] == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert found["text_text", True] == [[1, 1, 1]] * 3
    assert found["text_text", False] == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]  # a repeated pair is not its own negative


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"task_weights": {"image_txt": 1.0}}, "image_txt"),
        ({"task_batch_sizes": {"image_txt": 4}}, "image_txt"),
        ({"text_augmentation": {"subword_dropout": 0.1, "tasks": ["image_txt"]}}, "image_txt"),
        ({"embed_chunk_size": 0}, "embed_chunk_size"),
        ({"task_batch_sizes": {"text_text": 0}}, "text_text"),
        ({"task_learning_rates": TWO_RATES, "learning_rate_mapping": {"vision_model": 0.1}}, "learning_rate_mapping"),
        ({"task_learning_rates": TWO_RATES, "task_weights": {"text_text": 0.1}}, "task_weights"),
        ({"task_learning_rates": TWO_RATES, "optim": "schedule_free_adamw"}, "schedule_free_adamw"),
        ({"optim": "lomo"}, "lomo"),
    ],
)
def test_arguments_that_would_be_silently_wrong_are_refused(tmp_path, wrong, named):
    with pytest.raises(ValueError, match=named):
        shapes_trainer(tmp_path, **wrong)


class ScheduleFree(torch.optim.SGD):
    """An optimizer that, as schedule-free ones do, steps only in training mode."""

    is_training = False

    def train(self):
        self.is_training = True

    def eval(self):
        self.is_training = False

    def step(self, closure=None):
        assert self.is_training
        super().step(closure)


def test_optimizers_that_have_modes_are_in_the_right_one(tmp_path, monkeypatch):
    seen = []
    settings = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 2}
    trainer = shapes_trainer(tmp_path, **settings)
    optimizer = trainer.optimizer = ScheduleFree(trainer.model.parameters(), lr=0.01)
    measure, save = trainer.measure, trainer.model.save_pretrained
    monkeypatch.setattr(trainer, "measure", lambda data: seen.append(optimizer.is_training) or measure(data))
    monkeypatch.setattr(
        trainer.model, "save_pretrained", lambda *args, **kw: seen.append(optimizer.is_training) or save(*args, **kw)
    )
    trainer.train()
    assert seen == [False] * len(seen) and len(seen) >= 4
    assert not optimizer.is_training
