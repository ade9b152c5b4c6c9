"""Training on streams: as on data at hand, in several processes, and resumed to the same weights."""

import json
from pathlib import Path

import numpy as np
import pytest

from babelens.data.batching.mixture import TaskBatchSampler, TaskData, TaskMixture
from babelens.data.batching.views import image_text_pairs
from babelens.data.corpus.corpus import as_caption_corpus
from babelens.trainers.checkpoints import newest_checkpoint
from tests.support.tiny_training import VISION, assert_same, run_program, shapes_corpus, shapes_trainer, weights

TESTS = Path(__file__).parents[1] / "support"
BOTH = {"image_text": 8, "text_text": 4}
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


def _trained_on(folder, data, **changes):
    """The trainer of the shapes, trained on `data` instead."""
    trainer = shapes_trainer(folder, tasks=("image_text",), **changes)
    trainer = type(trainer)(
        model=trainer.model, args=trainer.args, processing_class=trainer.processing_class, train_dataset=data
    )
    trainer.train()
    return trainer


def test_a_stream_in_the_same_order_gives_the_same_weights(tmp_path):
    """With random crops, which depend on an example's number. Dropout is left out: the data loader of data at hand
    draws a number from its generator."""
    corpus, fixed = shapes_corpus(), {"dropout": 0.0, "vision": {**VISION, "attention_dropout": 0.0}, "max_steps": 4}
    view = image_text_pairs(corpus, ["en"])
    mixture = TaskMixture({"image_text": view})
    sampler, places = TaskBatchSampler(mixture, 8, seed=3), []
    for epoch in range(2):
        mixture.set_epoch(epoch)
        places += [draw.position for batch in sampler for draw in batch]
    stream = as_caption_corpus(corpus.select(places).to_iterable_dataset())
    one = _trained_on(tmp_path, view, **fixed)
    other = _trained_on(tmp_path, TaskData(stream, ["en"]), shuffle_buffer_size=1, **fixed)
    assert_same(weights(other.model), weights(one.model))


def test_it_learns_from_a_stream_beside_data_at_hand(tmp_path):
    trainer = shapes_trainer(
        tmp_path,
        shards={"image_text": 4},
        max_steps=100,
        optim="adamw_torch",
        learning_rate=1e-2,
        dropout=0.0,
        seed=1,
        image_augmentation={"horizontal_flip": 0.0},
        shuffle_buffer_size=16,
    )
    before = trainer.evaluate()
    trainer.train()
    assert trainer.evaluate()["eval_mean_recall_en"] > before["eval_mean_recall_en"] + 20
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    losses = [entry["loss_image_text"] for entry in logs]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    assert [entry["epoch"] for entry in logs] == pytest.approx([(step + 1) / 100 for step in range(100)])


def test_a_stream_needs_max_steps(tmp_path):
    with pytest.raises(ValueError, match="training on one needs max_steps"):
        shapes_trainer(tmp_path, shards=BOTH, max_steps=-1)


def test_a_run_that_is_over_is_not_trained_further(tmp_path):
    settings = {"shards": BOTH, "max_steps": 3, "save_strategy": "steps", "save_steps": 3}
    trainer = shapes_trainer(tmp_path, **settings)
    trainer.train()
    resumed = shapes_trainer(tmp_path, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3
    assert_same(weights(resumed.model), weights(trainer.model))


def test_a_checkpoint_without_the_streams_position_is_refused(tmp_path):
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path, **settings).train()
    with pytest.raises(FileNotFoundError, match=r"stream_0\.json"):
        shapes_trainer(tmp_path, shards=BOTH, **settings).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.mark.parametrize(
    "settings",
    [
        {"dataloader_num_workers": 2, "shards": BOTH},
        {"gradient_accumulation_steps": 2, "embed_chunk_size": 3, "shards": {"image_text": 1}},
    ],
    ids=["workers", "accumulated, beside data at hand"],
)
def test_a_run_goes_on_to_the_same_weights(tmp_path, settings):
    """Dropout, random crops and several passes are in it; the checkpoint is in the middle of a block and of a round
    of the workers."""
    settings |= {"max_steps": 11, "save_strategy": "steps", "save_steps": 3, "shuffle_buffer_size": 5}
    unbroken = shapes_trainer(tmp_path, **settings)
    unbroken.train()
    resumed = shapes_trainer(tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same(weights(resumed.model), weights(unbroken.model))


@pytest.mark.slow
def test_two_killed_processes_resume_to_the_same_weights(tmp_path):
    settings = {"max_steps": 7, "save_strategy": "steps", "save_steps": 3, "shuffle_buffer_size": 5}
    settings |= {"dataloader_num_workers": 2, "shards": BOTH}
    given = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
    program = TESTS / "tiny_training.py"
    run_program(program, tmp_path / "unbroken", *given, launcher=TWO)
    killed = run_program(program, tmp_path / "killed", "--die-at=5", *given, launcher=TWO, check=False)
    assert "Signal 9 (SIGKILL)" in killed.stderr
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-3"
    run_program(program, tmp_path / "killed", "--resume", *given, launcher=TWO)
    assert_same(np.load(tmp_path / "killed" / "weights.npz"), np.load(tmp_path / "unbroken" / "weights.npz"))


SHARES = """
import json, os, sys, time
from pathlib import Path
from tests.support.tiny_training import shapes_trainer
trainer = shapes_trainer(sys.argv[1], tasks=("image_text",), shards={"image_text": 8}, per_device_train_batch_size=4,
                         max_steps=4, shuffle_buffer_size=3, dataloader_num_workers=2)
seen, step = [], trainer.training_step
def training_step(model, inputs, *arguments):
    seen.extend(zip(*inputs["image_text"]["positives"].tolist()))
    return step(model, inputs, *arguments)
trainer.training_step = training_step
trainer.train()
Path(sys.argv[1], f"{trainer.args.process_index}.json").write_text(json.dumps(seen))
trainer.accelerator.wait_for_everyone()
time.sleep(0.5)
os._exit(0)
"""


@pytest.mark.slow
def test_two_processes_see_everything_once(tmp_path):
    (tmp_path / "shares.py").write_text(SHARES)
    run_program(tmp_path / "shares.py", tmp_path, launcher=TWO)
    one, other = ({tuple(pair) for pair in json.loads((tmp_path / f"{rank}.json").read_text())} for rank in (0, 1))
    assert len(one) == len(other) == 16
    assert len(one | other) == 32  # 16 images with two captions each
