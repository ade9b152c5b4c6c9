from collections import Counter

import pytest

from babelens.data.batching.mixture import GroupedView, TaskMixture, TaskSampler


class Words:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __len__(self):
        return self.size

    def __getitems__(self, indices):
        assert all(0 <= index < self.size for index in indices)
        return [{"group": self.name, "number": index} for index in indices]


def as_given(examples, seeds):
    return examples


@pytest.fixture
def mixture():
    tasks = {"main": Words("main", 20), "side": Words("side", 7)}
    return TaskMixture(tasks, dict.fromkeys(tasks, as_given))


def test_epochs_differ_and_repeat_themselves(mixture):
    sampler = TaskSampler(mixture, 4, seed=0)
    first = list(sampler)
    positions = [index for draw in first for index in draw["main"][0]]
    assert len(first) == 5 and sorted(positions) == list(range(20))  # one pass over the main task
    mixture.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert len({seed for draw in first + second for _, seeds in draw.values() for seed in seeds}) == 2 * 5 * 4 * 2
    mixture.set_epoch(0)
    assert list(sampler) == first
    assert list(TaskSampler(mixture, 4, seed=1)) != first


SIZES = {"de": 12, "fr": 5, "uk": 30}


def grouped(one_at_a_time=True, epoch=0, by_size=False, **sizes):
    groups = {name: Words(name, size) for name, size in (sizes or SIZES).items()}
    view = GroupedView(groups, one_at_a_time=one_at_a_time, by_size=by_size)
    made = TaskMixture({"main": view}, {"main": as_given})
    made.set_epoch(epoch)
    return made


def batches(epochs, *, seed=0, num_processes=1, **options):
    found = []
    for epoch in epochs:
        tasks = grouped(epoch=epoch, **options)
        for draw in TaskSampler(tasks, 4, seed=seed, num_processes=num_processes):
            found.append([(example["group"], example["number"]) for example in tasks[draw]["main"]])
    return found


def test_every_step_has_one_group_whose_examples_repeat_only_when_all_were_seen():
    found = batches(range(20))
    assert all(len({group for group, _ in batch}) == 1 for batch in found)
    for name, size in SIZES.items():
        numbers = [number for batch in found for group, number in batch if group == name]
        assert len(numbers) > 2 * size and sorted(numbers[:size]) == sorted(numbers[size : 2 * size]) == [*range(size)]
    assert batches(range(2, 4)) == found[22:44] != batches(range(2, 4), seed=1)  # a run resumed in epoch 2


def test_data_and_groups_smaller_than_a_batch_are_refused_by_name(mixture):
    with pytest.raises(ValueError, match="task 'side' has 7 examples, fewer than a batch of 8"):
        TaskSampler(mixture, 8, seed=0)
    with pytest.raises(ValueError, match="task 'main' has in 'fr' 3 examples, fewer than a batch of 4"):
        TaskSampler(grouped(de=9, fr=3), 4, seed=0)
    TaskSampler(grouped(de=9, fr=3, one_at_a_time=False), 4, seed=0)


@pytest.mark.parametrize(
    ("num_processes", "per_round"), [(1, {"de": 3, "fr": 1, "uk": 7}), (2, {"de": 2, "fr": 2, "uk": 6})]
)
def test_groups_by_size_have_as_many_steps_as_they_fill(num_processes, per_round):
    """A group that does not fill a step, `fr`, has one step in a round."""
    found = batches(range(20), by_size=True, num_processes=num_processes)
    steps = [found[start : start + num_processes] for start in range(0, len(found), num_processes)]
    assert all(len({group for batch in step for group, _ in batch}) == 1 for step in steps)
    size = sum(per_round.values())
    starts = range(0, len(found) - size + 1, size)
    rounds = [Counter(batch[0][0] for batch in found[start : start + size]) for start in starts]
    assert len(rounds) > 15 and all(counted == per_round for counted in rounds)
    once = Counter(example for batch in found[:size] for example in batch if example[0] != "fr")
    assert max(once.values()) == 1  # one pass
    orders = [tuple(batch[0][0] for batch in found[start : start + size]) for start in starts]
    assert len(set(orders)) > 10
    later = batches([3], by_size=True, num_processes=num_processes)
    size = len(later)
    assert later == found[3 * size : 4 * size]  # as a resumed run begins
