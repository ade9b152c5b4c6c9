"""Hard negatives are the hardest, no duplicates, and share batches; a killed run goes on with them exactly."""

import itertools

import numpy as np
import pytest
import torch
from tiny_training import assert_same, shapes_trainer, weights
from transformers import TrainerCallback

from babelens.configuration.errors import TrainingSetupError
from babelens.inference.embedder import Embedder
from babelens.trainers.hard_negatives import hardest_negatives, order_of_epoch


def brute_force(images, texts, image_ids, captions, count):
    """Example by example, as the docstring has it."""
    captions_of = {}
    for image, caption in zip(image_ids, captions, strict=True):
        captions_of.setdefault(image, set()).add(caption)
    found = []
    for i in range(len(images)):
        allowed = [
            j
            for j in range(len(images))
            if image_ids[j] != image_ids[i]
            and captions[j] not in captions_of[image_ids[i]]
            and captions[i] not in captions_of[image_ids[j]]
        ]
        nearest = sorted(allowed, key=lambda j: -float(images[i] @ texts[j]))[:count]
        found.append(nearest + [-1] * (count - len(nearest)))
    return np.array(found)


def test_mined_negatives_are_the_hardest_and_no_duplicates():
    generator = torch.Generator().manual_seed(0)
    image_ids = [f"image {number % 17}" for number in range(60)]  # several captions of each image
    captions = [f"caption {number * 7 % 23}" for number in range(60)]  # and of several images
    by_image = torch.nn.functional.normalize(torch.randn(17, 8, generator=generator), dim=1)
    images = by_image[[number % 17 for number in range(60)]]
    texts = torch.nn.functional.normalize(torch.randn(60, 8, generator=generator), dim=1)
    for count in (1, 4):
        found = hardest_negatives(images, texts, image_ids, captions, count)
        assert np.array_equal(found, brute_force(images, texts, image_ids, captions, count))
    alone = hardest_negatives(images[:2], texts[:2], ["a", "a"], ["x", "y"], 2)
    assert (alone == -1).all()


def test_negatives_follow_their_example_and_an_epoch_has_all():
    negatives = np.array([[3, 1], [4, 3], [5, 3], [0, 1], [1, 0], [-1, -1]])
    for seed in range(8):
        order = order_of_epoch(negatives, 1, [0, seed]).tolist()
        assert sorted(order) == list(range(6))
        first = order[0]
        assert order[1] == negatives[first, 0] or first == 5
    assert order_of_epoch(np.array([[1, 2], [2, 0], [1, 0]]), 2, [0]).tolist() in ([0, 1, 2], [1, 2, 0], [2, 1, 0])


class Batches(TrainerCallback):
    """The images of the batches of a training."""

    def __init__(self, trainer):
        self.seen, self.collate = [], trainer.data_collator
        trainer.data_collator = self

    def __call__(self, examples):
        self.seen.append([key.position for key, _ in examples if key.task == "image_text"])
        return self.collate(examples)


SETTINGS = {"hard_negatives": 3, "max_steps": 12, "optim": "adamw_torch", "dropout": 0.1}


def test_an_epoch_is_one_pass_whose_batches_have_hard_negatives(tmp_path):
    """32 examples in batches of 8: four steps in an epoch."""
    trainer = shapes_trainer(tmp_path, **SETTINGS)
    batches, mined = Batches(trainer), []
    mine = trainer._miner.mine
    trainer._miner.mine = lambda *arguments: mined.append(mine(*arguments)) or mined[-1]
    trainer.train()
    assert len(batches.seen) == 12 and len(mined) == 2  # before the second and the third epoch
    by_epoch = [batches.seen[4 * epoch : 4 * epoch + 4] for epoch in range(3)]
    ranks = []  # the mean rank of the negatives in a batch, by hardness
    for epoch, own in enumerate(by_epoch):
        assert sorted(itertools.chain(*own)) == list(range(32))
        negatives = mined[max(epoch - 1, 0)].tolist()
        pairs = [(each, other) for batch in own for each in batch for other in batch if other in negatives[each]]
        ranks.append(np.mean([negatives[each].index(other) for each, other in pairs]))
    assert max(ranks[1:]) < ranks[0] - 0.5
    examples = list(trainer._miner.view.without_images())
    for own, others in enumerate(mined[0]):
        for other in others[others >= 0]:
            assert examples[own]["image_id"] != examples[other]["image_id"]
            assert examples[own]["text"] != examples[other]["text"]


@pytest.mark.parametrize("freeze", [("image", "text"), ("image",)])
def test_frozen_towers_do_not_run_once_more(freeze, tmp_path, monkeypatch):
    """What is mined is what the whole model would mine, from the features that training reads."""
    trainer = shapes_trainer(tmp_path, freeze=freeze, **SETTINGS)
    miner = trainer._miner
    assert sorted(miner.features) == [f"{tower}_features" for tower in sorted(freeze)]
    texts, images = (
        miner._projected(trainer.model, *each)
        for each in (("text", trainer.model.get_text_features), ("image", trainer.model.get_image_features))
    )
    embedder = Embedder(trainer.model, trainer.processing_class)
    whole = torch.from_numpy(embedder.encode_image(miner.view.images))[torch.from_numpy(miner.view.rows)]
    torch.testing.assert_close(images, whole, atol=1e-5, rtol=1e-4)
    if texts is not None:
        examples = list(miner.view.without_images())
        captions, tags = ([each[name] for each in examples] for name in ("text", "language"))
        whole = torch.from_numpy(embedder.encode_text(captions, language=tags))
        torch.testing.assert_close(texts, whole, atol=1e-5, rtol=1e-4)
    monkeypatch.setattr(trainer.model.vision_model, "forward", None)
    trainer.train()
    assert miner.epoch == 2 and sorted(miner.order) == list(range(32))


def test_a_run_resumes_in_the_middle_of_a_mined_epoch(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 3}
    unbroken = shapes_trainer(tmp_path / "run", **SETTINGS, **saving)
    unbroken.train()
    for step in (6, 9):  # in the second epoch, and in the third
        resumed = shapes_trainer(tmp_path / "again", **SETTINGS)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        assert_same(weights(resumed.model), weights(unbroken.model))


def test_what_has_no_negatives_says_so(tmp_path, caplog):
    shapes_trainer(tmp_path, **SETTINGS | {"max_steps": 4}).train()
    shapes_trainer(tmp_path, max_steps=1, per_device_train_batch_size=1).train()
    told = [record.getMessage() for record in caplog.records if "negatives" in record.getMessage()]
    assert [each.partition(":")[0] for each in told] == ["hard_negatives", "image_text", "text_text"]
    caplog.clear()
    shapes_trainer(tmp_path, **SETTINGS | {"max_steps": 5}).train()
    assert "ends with its first epoch" not in caplog.text and "teaches nothing" not in caplog.text


def test_what_cannot_be_mined_is_refused(tmp_path):
    with pytest.raises(TrainingSetupError, match="neither in streams nor in groups of languages"):
        shapes_trainer(tmp_path, hard_negatives=2, shards={"image_text": 2})
    with pytest.raises(TrainingSetupError, match="the task image_text has to be the first task"):
        shapes_trainer(tmp_path, hard_negatives=2, tasks=("text_text",))
    with pytest.raises(ValueError, match="hard_negatives=-1 must not be negative"):
        shapes_trainer(tmp_path, hard_negatives=-1)
