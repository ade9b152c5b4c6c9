import pytest

from babelens.data.batching.mixture import TaskData, TaskMixture, TaskSampler
from babelens.data.batching.views import image_text_pairs
from babelens.data.corpus.loading import load_captions
from babelens.trainers.checkpoints import newest_checkpoint
from tests.support.processes import DIED, together
from tests.support.scaled_training import BATCH_NORM, train
from tests.support.tiny_training import VISION, assert_same, shapes_corpus, shapes_trainer, weights

BOTH = {"image_text": 8, "text_text": 4}
TWO_RATES = {"image_text": 1e-3, "text_text": 1e-4}
# For streams: the checkpoint is in the middle of a block, and of a round of the workers.
CASES = {
    "lamb with two rates, chunks, accumulation, a worker": {
        "task_learning_rates": TWO_RATES,
        "task_batch_sizes": {"text_text": 3},
        "embed_chunk_size": 3,
        "gradient_accumulation_steps": 2,
        "dataloader_num_workers": 1,
        "dataloader_persistent_workers": True,
        "text_augmentation": {"subword_dropout": 0.3},
    },
    "streams with workers": {"dataloader_num_workers": 2, "shards": BOTH, "shuffle_buffer_size": 5},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_to_the_same_weights(tmp_path, case):
    """Dropout, random crops and several passes over the data are in it."""
    settings = {"max_steps": 7, "save_strategy": "steps", "save_steps": 3} | CASES[case]
    unbroken = shapes_trainer(tmp_path, **settings)
    unbroken.train()
    resumed = shapes_trainer(tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same(weights(resumed.model), weights(unbroken.model))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "settings"),
    [
        (1, {"embed_chunk_size": 3, "task_learning_rates": TWO_RATES, "vision": BATCH_NORM}),
        (2, {"per_device_train_batch_size": 4, "embed_chunk_size": 2, "dataloader_num_workers": 1}),
        (2, {"dataloader_num_workers": 2, "shards": BOTH, "shuffle_buffer_size": 5, "save_steps": 2}),
    ],
    ids=["chunks, batch norm", "two processes", "two processes on streams"],
)
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, processes, settings):
    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 3, **settings}
    unbroken = together(processes, train, tmp_path / "unbroken", **settings)
    with pytest.raises(DIED):
        together(processes, train, tmp_path / "killed", die_at=8, **settings)
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-6"
    resumed = together(processes, train, tmp_path / "killed", resume=True, **settings)
    for found, expected in zip(resumed, unbroken, strict=True):
        for task, losses in expected.losses.items():
            assert losses[-len(found.losses[task]) :] == found.losses[task]
        assert_same(found.weights, expected.weights)


def test_a_checkpoint_counts_once_it_is_overwritten_whole(tmp_path, monkeypatch):
    """A run goes on from an earlier checkpoint than its newest one, whose folder it overwrites."""

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path, **settings).train()
    again = shapes_trainer(tmp_path, **settings)
    monkeypatch.setattr(again.processing_class, "save_pretrained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert newest_checkpoint(tmp_path).name == "checkpoint-2"


def _trained_on(folder, data, **changes):
    trainer = shapes_trainer(folder, tasks=("image_text",), **changes)
    trainer.train_dataset = data
    trainer.train()
    return trainer


def test_a_stream_in_the_same_order_gives_the_same_weights(tmp_path):
    """With random crops, which depend on an example's number; without dropout, because the data loader of a `Dataset`
    draws a number from its generator."""
    corpus, fixed = shapes_corpus(), {"dropout": 0.0, "vision": {**VISION, "attention_dropout": 0.0}, "max_steps": 4}
    view = image_text_pairs(corpus, ["en"])
    mixture = TaskMixture({"image_text": view}, {})
    sampler, places = TaskSampler(mixture, 8, seed=3), []
    for epoch in range(2):
        mixture.set_epoch(epoch)
        places += [index for draw in sampler for index in draw["image_text"][0]]
    stream = load_captions(corpus.select(places).to_iterable_dataset(), check_images=False)
    one = _trained_on(tmp_path, view, **fixed)
    other = _trained_on(tmp_path, TaskData(stream, ["en"]), shuffle_buffer_size=1, **fixed)
    assert_same(weights(other.model), weights(one.model))
    logged = [entry["epoch"] for entry in other.state.log_history if "loss" in entry]
    assert logged == pytest.approx([(step + 1) / 4 for step in range(4)])


def test_a_stream_needs_max_steps_and_its_position(tmp_path):
    with pytest.raises(ValueError, match="needs max_steps"):
        shapes_trainer(tmp_path, shards=BOTH, max_steps=-1).train()
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    shapes_trainer(tmp_path, **settings).train()
    with pytest.raises(FileNotFoundError, match=r"stream_0\.json"):
        shapes_trainer(tmp_path, shards=BOTH, **settings).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
