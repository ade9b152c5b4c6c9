"""Batches of several tasks: complete, reproducible, shared out among processes."""

import pytest
from torch.utils.data import DataLoader

from babelens.data.batching.mixture import TaskBatchSampler, TaskMixture


class Numbers:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitems__(self, indices):
        return [{"number": index} for index in indices]


@pytest.fixture
def mixture():
    return TaskMixture({"main": Numbers(20), "side": Numbers(7)})


def _indices(batches, task):
    return [draw.position for batch in batches for draw in batch if draw.task == task]


def test_an_epoch_is_one_pass_over_the_main_task(mixture):
    batches = list(TaskBatchSampler(mixture, 4, seed=0))
    assert len(batches) == 5
    assert sorted(_indices(batches, "main")) == list(range(20))


def test_other_tasks_run_in_step_and_start_over(mixture):
    side = _indices(TaskBatchSampler(mixture, 4, seed=0), "side")
    assert len(side) == 20
    assert sorted(side[:7]) == sorted(side[7:14]) == list(range(7))
    assert side[:7] != side[7:14]


def test_epochs_differ_and_repeat_themselves(mixture):
    sampler = TaskBatchSampler(mixture, 4, seed=0)
    first = list(sampler)
    mixture.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert len({draw.seed for batch in first + second for draw in batch}) == 2 * 5 * 4 * 2
    mixture.set_epoch(0)
    assert list(sampler) == first
    assert list(TaskBatchSampler(mixture, 4, seed=1)) != first


def test_every_process_gets_as_many_batches(mixture):
    assert len(TaskBatchSampler(mixture, 4, seed=0, num_processes=2)) == 4
    assert len(TaskBatchSampler(mixture, 4, seed=0, num_processes=3)) == 3


def test_a_batch_larger_than_the_data_is_refused(mixture):
    with pytest.raises(ValueError, match="task 'side' has 7 examples, fewer than a batch of 8"):
        TaskBatchSampler(mixture, 8, seed=0)


@pytest.mark.parametrize("workers", [2])
def test_examples_come_with_their_draws(mixture, workers):
    loader = DataLoader(
        mixture, batch_sampler=TaskBatchSampler(mixture, 4, seed=0), collate_fn=list, num_workers=workers
    )
    for batch in loader:
        assert len(batch) == 8
        assert all(example["number"] == draw.position for draw, example in batch)
