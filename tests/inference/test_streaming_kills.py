"""Embeddings as shards while processes are killed, in several processes, and on a Ray cluster."""

import itertools
import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from babelens.inference.embedder import Embedder
from babelens.inference.embedding_shards import shard_files
from babelens.inference.streaming.cluster import ShardActor, embed_on_ray, shard_as_json
from babelens.inference.streaming.job import EmbeddingJob
from babelens.inference.streaming.output import counts_in
from babelens.inference.streaming.worker import embed_source
from babelens.utils.errors import MissingExtraError
from tests.support.forks import forked
from tests.support.image_sources import contents, write_tars
from tests.support.killed_saving import killed_at_each_operation
from tests.support.processes import together
from tests.support.tiny_native import saved, tiny_clip

pytestmark = pytest.mark.slow

BROKEN = (3, 9)


@pytest.fixture(scope="module")
def embedder():
    return Embedder(*tiny_clip(), batch_size=4)


def job_of(source, output, **settings):
    return EmbeddingJob(str(source), output, columns={"url": None}, **settings)


def whole_shards(folder):
    """The shards that have appeared; each can be read to its end, and its sums are right."""
    return [file.name for file in shard_files(folder) if counts_in(file)]


def test_killed_before_each_operation_on_files_and_resumed(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 3, broken=(4,))
    embed_source(embedder, job_of(tars, tmp_path / "whole"), model="tiny")
    kills, seen = 0, set()
    for _ in killed_at_each_operation(
        lambda: embed_source(embedder, job_of(tars, tmp_path / "out"), model="tiny", show_progress=False),
        lambda: None,  # every life goes on with what the one before left
    ):
        kills += 1
        seen.add(len(whole_shards(tmp_path / "out")))
    assert kills > 10 and seen == {0, 1, 2}
    embed_source(embedder, job_of(tars, tmp_path / "out"), model="tiny")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def live_and_die(embedder, job, batches, delay):
    """Embeds in this process, which is killed some time after its first batches; with threads at work meanwhile."""
    encode, encoded = embedder.encode_prepared, itertools.count(1)

    def counted(*arguments):
        if next(encoded) == batches:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if not delay:
                time.sleep(60)
        return encode(*arguments)

    embedder.encode_prepared = counted
    try:
        embed_source(embedder, job, model="tiny", show_progress=False)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the killed process is a fork, which Windows does not have")
def test_killed_at_random_moments_and_resumed(embedder, tmp_path):
    tars = write_tars(tmp_path / "tars", 12, 6, broken=BROKEN)
    embed_source(embedder, job_of(tars, tmp_path / "whole", workers=2), model="tiny")
    moments, kills = random.Random(0), 0
    for life in range(8):
        batches, delay = moments.randint(1, 4), moments.random() * 0.02 * (life % 2)
        child = forked()
        if child == 0:
            live_and_die(embedder, job_of(tars, tmp_path / "out", workers=2), batches, delay)
        status = os.waitpid(child, 0)[1]
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
        kills += status != 0
        whole_shards(tmp_path / "out")
    counts = embed_source(embedder, job_of(tars, tmp_path / "out", workers=2), model="tiny")
    assert kills >= 1 and (counts.read, counts.embedded, counts.skipped) == (72, 70, {"unreadable image": 2})
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def embed_here(folder, source, output):
    """In one of several processes; returns its counts."""
    embedder = Embedder.from_pretrained(folder, batch_size=4, device="cpu")
    counts = embed_source(embedder, job_of(source, output), model=str(folder), show_progress=False)
    return counts and vars(counts)


def test_two_processes_share_the_shards(embedder, tmp_path):
    folder = saved((embedder.model, embedder.processor), tmp_path / "clip")
    tars = write_tars(tmp_path / "tars", 5, 3, broken=BROKEN)
    alone = embed_source(embedder, job_of(tars, tmp_path / "alone"), model=str(folder))
    first, second = together(2, embed_here, folder, tars, tmp_path / "out")
    assert first == vars(alone) and second is None
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    for number in (1, 2, 4):  # what is missing is shared anew
        (tmp_path / "out" / f"shard-{number:06}.parquet").unlink()
    assert together(2, embed_here, folder, tars, tmp_path / "out")[0] == vars(alone)
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two workers on this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patched.setenv("RAY_worker_niceness", "0")
        ray = pytest.importorskip("ray")
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init(address="local", num_cpus=2, object_store_memory=80 * 2**20, **quiet)
        yield ray
        ray.shutdown()


def actors():
    """The processes of this test's Ray that embed shards."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if "ShardActor" in each.name() or "ShardActor" in "".join(each.cmdline())]


def kill_one(output: Path, killed: list[int]) -> None:
    """Kills an actor once there are some shards."""
    until = time.monotonic() + 200
    while time.monotonic() < until and not killed:
        if len(shard_files(output)) >= 2 and (alive := actors()):
            os.kill(alive[0].pid, signal.SIGKILL)
            killed.append(len(shard_files(output)))
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_ray_cluster_loses_a_worker_and_nothing_else(cluster, embedder, tmp_path):
    folder = saved((embedder.model, embedder.processor), tmp_path / "clip")
    tars = write_tars(tmp_path / "tars", 24, 40, broken=BROKEN)
    alone = embed_source(embedder, job_of(tars, tmp_path / "alone"), model=str(folder))
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(tmp_path / "out", killed))
    killer.start()
    counts = embed_on_ray(str(folder), job_of(tars, tmp_path / "out"), show_progress=False, batch_size=4)
    killer.join()
    assert killed and killed[0] < 24
    assert counts == alone
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


def test_errors_of_an_actor_keep_their_types(embedder, tmp_path):
    folder = saved((embedder.model, embedder.processor), tmp_path / "clip")
    job = job_of(write_tars(tmp_path / "tars", 2, 4), tmp_path / "out")
    embed_source(embedder, job, model=str(folder))
    batch = {"shard": [shard_as_json(shard) for shard in job.shards()]}
    actor = ShardActor(str(folder), {"device": "cpu"}, job, job.metadata_schema())
    assert actor({"shard": batch["shard"][:1]}) == {"error": [""], "stop": [""]}
    embedder = Embedder.from_pretrained(folder)
    embedder.model.visual_projection.weight.data.mul_(-1)
    other = saved((embedder.model, embedder.processor), tmp_path / "other")
    refused = ShardActor(str(other), {"device": "cpu"}, job, job.metadata_schema())(batch)
    assert refused["stop"][0] == "ChangedRunError" and "embeddings of another model" in refused["error"][0]
    elsewhere = replace(job, output=tmp_path / "not-mounted")
    refused = ShardActor(str(folder), {"device": "cpu"}, elsewhere, job.metadata_schema())(batch)
    assert refused["stop"][0] == "SaveError" and "the same file system" in refused["error"][0]


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ray\[data\]'"):
        embed_on_ray("model", job_of(tmp_path, tmp_path / "out"))
