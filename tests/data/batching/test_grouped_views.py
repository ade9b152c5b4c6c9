"""Batches of one language a step: which group a step has, and which of its examples."""

from collections import Counter

import pytest
from torch.utils.data import DataLoader

from babelens.data.batching.mixture import GroupedView, TaskBatchSampler, TaskMixture


class Words:
    """The examples of a group: its name and their numbers in it."""

    def __init__(self, name, size):
        self.name, self.size = name, size

    def __len__(self):
        return self.size

    def __getitems__(self, indices):
        assert all(0 <= index < self.size for index in indices)
        return [{"group": self.name, "number": index} for index in indices]


SIZES = {"de": 12, "fr": 5, "uk": 30}


def mixture(one_at_a_time=True, epoch=0, by_size=False, **sizes):
    groups = {name: Words(name, size) for name, size in (sizes or SIZES).items()}
    view = GroupedView(groups, one_at_a_time=one_at_a_time, by_size=by_size)
    made = TaskMixture({"main": view})
    made.set_epoch(epoch)
    return made


def batches(epochs, *, seed=0, num_processes=1, **options):
    """The examples of every batch, epoch after epoch."""
    found = []
    for epoch in epochs:
        tasks = mixture(epoch=epoch, **options)
        for draws in TaskBatchSampler(tasks, 4, seed=seed, num_processes=num_processes):
            found.append([(example["group"], example["number"]) for _, example in tasks.__getitems__(draws)])
    return found


def groups_of(batch):
    return {group for group, _ in batch}


def test_every_step_has_one_group_and_each_group_as_many_steps():
    found = batches(range(60))
    assert all(len(batch) == 4 and len(groups_of(batch)) == 1 for batch in found)
    steps = Counter(group for batch in found for group in groups_of(batch))
    assert len(found) == 660
    assert all(abs(count - 220) < 4 * (660 * 2 / 9) ** 0.5 for count in steps.values()), steps  # 4 standard deviations


def test_a_group_repeats_no_example_before_all_were_seen():
    found = batches(range(20))
    for name, size in SIZES.items():
        numbers = [number for batch in found for group, number in batch if group == name]
        rounds = [numbers[start : start + size] for start in range(0, len(numbers) - size + 1, size)]
        assert len(rounds) > 2
        assert all(sorted(one) == list(range(size)) for one in rounds)
        assert rounds[0] != rounds[1]


def test_what_a_batch_holds_follows_from_seed_and_number():
    whole = batches(range(4))
    assert batches(range(2, 4)) == whole[22:]  # a run resumed in epoch 2
    assert batches(range(4)) == whole
    assert batches(range(4), seed=1) != whole


@pytest.mark.parametrize("num_processes", [2])
def test_processes_share_a_group_and_no_example(num_processes):
    found = batches(range(30), num_processes=num_processes, de=24, uk=36)
    assert len(found) % num_processes == 0
    for start in range(0, len(found), num_processes):
        step = found[start : start + num_processes]
        assert len({group for batch in step for group in groups_of(batch)}) == 1
    for name, size in {"de": 24, "uk": 36}.items():
        numbers = [number for batch in found for group, number in batch if group == name]
        assert all(sorted(numbers[at : at + size]) == list(range(size)) for at in range(0, len(numbers) - size, size))


def test_a_group_smaller_than_a_batch_is_refused_by_name():
    with pytest.raises(ValueError, match="task 'main' has in 'fr' 3 examples, fewer than a batch of 4"):
        TaskBatchSampler(mixture(de=9, fr=3), 4, seed=0)
    TaskBatchSampler(mixture(de=9, fr=3, one_at_a_time=False), 4, seed=0)


@pytest.mark.parametrize("workers", [2])
def test_a_data_loader_reads_them(workers):
    tasks = mixture()
    loader = DataLoader(tasks, batch_sampler=TaskBatchSampler(tasks, 4, seed=0), collate_fn=list, num_workers=workers)
    found = [[(example["group"], example["number"]) for _, example in batch] for batch in loader]
    assert found == batches([0])


@pytest.mark.parametrize(
    ("num_processes", "per_round"), [(1, {"de": 3, "fr": 1, "uk": 7}), (2, {"de": 2, "fr": 2, "uk": 6})]
)
def test_groups_by_size_have_as_many_steps_as_they_fill(num_processes, per_round):
    """A group that does not fill a step, `fr`, has one step in a round."""
    found = batches(range(20), by_size=True, num_processes=num_processes)
    steps = [found[start : start + num_processes] for start in range(0, len(found), num_processes)]
    assert all(len({group for batch in step for group in groups_of(batch)}) == 1 for step in steps)
    size = sum(per_round.values())
    starts = range(0, len(found) - size + 1, size)
    rounds = [Counter(batch[0][0] for batch in found[start : start + size]) for start in starts]
    assert len(rounds) > 15 and all(counted == per_round for counted in rounds)
    once = Counter(example for batch in found[:size] for example in batch if example[0] != "fr")
    assert max(once.values()) == 1  # one pass
    orders = [tuple(batch[0][0] for batch in found[start : start + size]) for start in starts]
    assert len(set(orders)) > 10
    assert found == batches(range(20), by_size=True, num_processes=num_processes)
    assert found != batches(range(20), by_size=True, num_processes=num_processes, seed=1)
    later = batches([3], by_size=True, num_processes=num_processes)
    size = len(later)
    assert later == found[3 * size : 4 * size]  # as a resumed run begins
