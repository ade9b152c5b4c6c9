"""The folder of an index: kills, full disks, two writers, damage."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from full_disk import full_disk
from index_vectors import source_of, unit
from killed_saving import killed_at_each_operation

from babelens.configuration.errors import SaveError, SearchIndexError
from babelens.configuration.locks import locked_folder
from babelens.search import build_index, open_index
from babelens.search.index_folder import read_manifest

VECTORS = unit(np.random.default_rng(0), 60)
MOVES = ("os.rename", "os.remove", "os.rmdir")
CHANGES = {
    "add": lambda index: index.add(source_of(VECTORS[40:], 40)),
    "delete": lambda index: index.delete(["000003.jpg"]),
    "compact": lambda index: index.compact(),
}


@pytest.fixture(params=["exact", "hnsw"])
def engine(request):
    return request.param


def state(folder):
    return sorted(hit.id for hit in open_index(folder).search(VECTORS[:1], 99)[0])


def prepare(folder, engine):
    index = build_index(folder, source_of(VECTORS[:40]), engine)
    index.delete(["000002.jpg"])
    return index


@pytest.mark.parametrize(
    ("engine", "change"), [("exact", "add"), ("exact", "delete"), ("exact", "compact"), ("hnsw", "add")]
)
def test_a_kill_leaves_the_earlier_index_or_the_new_one(engine, change, tmp_path):
    new = iter(range(999))
    folder = tmp_path

    def begin():
        nonlocal folder
        folder = tmp_path / str(next(new))
        prepare(folder, engine)

    begin()
    before = state(folder)
    CHANGES[change](open_index(folder))
    after = state(folder)
    kills = 0
    for kills in killed_at_each_operation(lambda: CHANGES[change](open_index(folder)), begin, events=MOVES):  # noqa: B007
        assert state(folder) in (before, after)
        open_index(folder).add(source_of(VECTORS[:1], 500))  # the next change removes what the killed one left
        names = {entry.name for entry in folder.iterdir() if entry.name != ".lock"}
        stated = json.loads((folder / "index.json").read_text())
        assert names == {"index.json", *stated["rows"], *filter(None, (stated["deleted"], stated["graph"]))}
    assert kills > 2 and state(folder) == after


def test_a_build_that_is_killed_leaves_no_index_and_can_be_repeated(engine, tmp_path):
    new = iter(range(999))
    folder = tmp_path

    def begin():
        nonlocal folder
        folder = tmp_path / str(next(new))

    def build():
        build_index(folder, source_of(VECTORS), engine)

    kills = 0
    for kills in killed_at_each_operation(build, begin, events=MOVES):  # noqa: B007
        if not (folder / "index.json").exists():
            if folder.exists():
                with pytest.raises(SearchIndexError, match="is no index"):
                    open_index(folder)
            build()
        assert len(state(folder)) == 60
    assert kills > 2


def test_lancedb_keeps_the_earlier_index_too(tmp_path):
    """LanceDB's threads do not survive a fork: the kill is in a process of its own, while vectors are read."""
    folder = tmp_path / "index"
    prepare(folder, "lance")
    before = state(folder)
    program = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from index_vectors import source_of, unit
from babelens.search import open_index
import numpy as np
from dataclasses import replace
source = source_of(unit(np.random.default_rng(1), 20), 40)
def read():
    yield next(source.read())
    os.kill(os.getpid(), signal.SIGKILL)
open_index({str(folder)!r}).add(replace(source, read=read))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == -9
    assert state(folder) == before
    assert CHANGES["add"](open_index(folder)) == 20


@pytest.mark.parametrize("engine", ["exact", "hnsw", "lance"])
def test_one_of_two_writers_is_told_why_it_stops(engine, tmp_path):
    index = prepare(tmp_path / "index", engine)
    with locked_folder(tmp_path / "index"):
        for change in CHANGES.values():
            with pytest.raises(SaveError, match=f"is in use by process {os.getpid()}"):
                change(index)
        assert len(index.search(VECTORS[:1], 99)[0]) == 39  # readers go on
    (tmp_path / "new").mkdir()
    with locked_folder(tmp_path / "new"), pytest.raises(SaveError, match="is in use by"):
        build_index(tmp_path / "new", source_of(VECTORS), engine)


@pytest.mark.parametrize("engine", ["exact", "hnsw", "lance"])
def test_an_open_index_goes_on_while_another_one_changes_it(engine, tmp_path):
    reader, writer = prepare(tmp_path / "index", engine), open_index(tmp_path / "index")
    before = [hit.id for hit in reader.search(VECTORS[:1], 99)[0]]
    writer.add(source_of(VECTORS[40:], 40))
    writer.compact()
    assert [hit.id for hit in reader.search(VECTORS[:1], 99)[0]] == before
    assert reader.delete(["000041.jpg"]) == 1  # a change begins with what the index is now
    assert reader.stat().vectors == 58


@pytest.mark.parametrize("engine", ["hnsw", "ivf-pq"])
def test_a_graph_that_is_first_used_after_a_change(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.search.faiss_index._SCANNED", 10)
    reader, writer = prepare(tmp_path / "index", engine), open_index(tmp_path / "index")
    before = [hit.id for hit in open_index(tmp_path / "index").search(VECTORS[:1], 5)[0]]
    writer.add(source_of(VECTORS[40:], 40))
    assert [hit.id for hit in reader.search(VECTORS[:1], 5)[0]] == before


def test_an_index_that_another_process_changes_at_once(tmp_path, monkeypatch):
    index, other = prepare(tmp_path / "index", "exact"), open_index(tmp_path / "index")

    def overtaken(folder):
        manifest = read_manifest(folder)
        monkeypatch.undo()
        other.compact()
        return manifest

    monkeypatch.setattr("babelens.search.stored_vectors.read_manifest", overtaken)
    assert index.delete(["000005.jpg"]) == 1 and index.stat().vectors == 38


@pytest.mark.parametrize("is_seen", [False, True])
def test_the_size_of_an_index_that_is_being_changed(is_seen, tmp_path, monkeypatch):
    index, stat = prepare(tmp_path / "index", "exact"), os.stat

    def removing(path, **options):
        if not str(path).endswith("rows.arrow"):
            return stat(path, **options)
        facts = stat(path, **options) if is_seen else None
        os.unlink(path)
        return facts or stat(path, **options)

    size = index.stat().bytes
    monkeypatch.setattr(os, "stat", removing)
    assert 0 < index.stat().bytes <= size


def test_a_full_disk_leaves_the_earlier_index(engine, tmp_path):
    index = prepare(tmp_path / "index", engine)
    before = state(tmp_path / "index")
    with full_disk(300):
        for change in CHANGES.values():
            with pytest.raises(SaveError, match="could not be written"):
                change(index)
    assert state(tmp_path / "index") == before and index.stat().vectors == 39


@pytest.mark.parametrize("damage", ["manifest", "later", "missing", "short", "rows", "graph", "deleted", "no rows"])
def test_damage_is_named(damage, tmp_path):
    index = prepare(tmp_path / "index", "hnsw")
    part = tmp_path / "index" / next(iter(index.manifest.rows))
    if damage == "manifest":
        (tmp_path / "index/index.json").write_text('{"format": 1}')
    elif damage == "later":
        stated = json.loads((tmp_path / "index/index.json").read_text())
        (tmp_path / "index/index.json").write_text(json.dumps(stated | {"format": 2}))
    elif damage == "missing":
        (part / "vectors.f16").unlink()
    elif damage == "no rows":
        (part / "rows.arrow").unlink()
    else:
        file = {
            "deleted": tmp_path / "index" / index.manifest.deleted,
            "short": part / "vectors.f16",
            "rows": part / "rows.arrow",
        }.get(damage)
        file = file or tmp_path / "index" / index.manifest.graph
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SearchIndexError, match=r"is damaged(?!: None)|a later version reads"):
        open_index(tmp_path / "index").add(source_of(VECTORS[40:], 40))
