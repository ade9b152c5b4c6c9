import logging
from collections import Counter
from itertools import islice

import pytest
from datasets import Dataset, Image

from babelens.data.batching.mixture import StreamBatches, StreamLoader, TaskMixture, TaskSampler
from babelens.data.batching.views import image_text_pairs
from babelens.data.corpus.loading import load_captions
from tests.support.image_sources import drawn


def corpus(count):
    images = [{"bytes": drawn(number, (8, 8)), "path": None} for number in range(count)]
    captions = [{"en": f"en {number}", "de": f"de {number}"} for number in range(count)]
    columns = {"image": images, "image_id": list(map(str, range(count))), "captions": captions}
    return load_captions(Dataset.from_dict(columns).cast_column("image", Image()), check_images=False)


def stream(count, shards):
    return load_captions(corpus(count).to_iterable_dataset(num_shards=shards), check_images=False)


def loader(*, count=48, shards=4, workers=0, size=8, **changes):
    tasks = changes.pop("tasks", None) or {"image_text": image_text_pairs(stream(count, shards), ["en"])}
    sampling = {"seed": changes.pop("seed", 0), "num_processes": changes.pop("num_processes", 1)}
    with_seeds = dict.fromkeys(tasks, lambda examples, seeds: list(zip(seeds, examples, strict=True)))
    sampler = TaskSampler(TaskMixture(tasks, with_seeds), size, **sampling)
    settings = {"block_size": 8, "num_workers": workers} | changes
    return StreamLoader(StreamBatches(sampler, **settings), length=1000)


def texts(batches):
    return [example["text"] for batch in batches for part in batch.values() for _, example in part]


def seen(batch):
    return [(task, seed, each | {"image": each["image"].tobytes()}) for task in batch for seed, each in batch[task]]


def test_a_pass_has_every_example_once():
    given = texts(islice(loader(workers=2), 12))
    assert sorted(given[:48]) == sorted(given[48:]) == sorted(f"en {number}" for number in range(48))


def test_passes_are_shuffled_and_differ():
    given = texts(islice(loader(shards=1), 12))
    first, second = ([int(text.split()[1]) for text in part] for part in (given[:48], given[48:]))
    assert first != sorted(first)
    assert first != second
    # The rows of a single shard come in the order of the file, block by block.
    assert [number // 8 for number in first] == sorted(number // 8 for number in first)
    assert texts(islice(loader(shards=1), 12)) == given
    assert texts(islice(loader(shards=1, seed=1), 12)) != given


@pytest.mark.parametrize(("processes", "workers", "shards"), [(2, 1, 4), (3, 1, 2)])
def test_processes_share_a_stream(processes, workers, shards, caplog):
    options = {"size": 4, "workers": workers, "shards": shards, "num_processes": processes}
    with caplog.at_level(logging.WARNING, logger="babelens"):
        shares = [texts(islice(loader(process=p, **options), 12 // processes)) for p in range(processes)]
    assert sorted(text for share in shares for text in share) == sorted(f"en {number}" for number in range(48))
    assert ("2 shards are too few for 3 processes" in caplog.text) == (shards < processes * workers)


@pytest.mark.parametrize("side", [stream(12, 2), corpus(12)], ids=["stream", "at hand"])
def test_tasks_may_have_batches_of_their_own_sizes(tmp_path, side):
    tasks = {"main": image_text_pairs(stream(48, 4), ["en"]), "side": image_text_pairs(side, ["de"])}
    sizes = {"main": 8, "side": 3}
    unbroken = loader(tasks=tasks, size=sizes)
    given = list(islice(unbroken, 4))
    assert [{task: len(part) for task, part in batch.items()} for batch in given] == [sizes] * 4
    sides = Counter(text for text in texts(given) if text.startswith("de"))
    assert sides == Counter({f"de {number}": 1 for number in range(12)})
    unbroken.save(tmp_path)
    resumed = loader(tasks=tasks, size=sizes)
    resumed.load(tmp_path)
    assert seen(next(iter(resumed))) == seen(next(islice(loader(tasks=tasks, size=sizes), 4, None)))
    with pytest.raises(ValueError, match="batch size was"):
        loader(tasks=tasks, size=8).load(tmp_path)


@pytest.mark.parametrize(("workers", "block_size"), [(0, 7), (2, 7)])
def test_it_goes_on_exactly_wherever_it_stopped(tmp_path, workers, block_size):
    """Even in the middle of blocks, passes and rounds of the workers, with images and seeds."""
    settings = {"count": 20, "workers": workers, "block_size": block_size, "size": 3}
    unbroken = loader(**settings)
    expected = []
    for number, batch in enumerate(islice(unbroken, 14)):
        expected.append(seen(batch))
        (tmp_path / str(number)).mkdir()
        unbroken.save(tmp_path / str(number))
    for number in (0, 3, 6, 9) if workers == 0 else (4, 7):
        resumed = loader(**settings)
        resumed.load(tmp_path / str(number))
        assert [seen(batch) for batch in islice(resumed, 13 - number)] == expected[number + 1 :], number
