"""The folder of an index: kills, full disks, two writers, damage."""

import json
import os
import struct
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from full_disk import full_disk
from index_vectors import source_of, unit

from babelens.configuration.errors import SaveError, SearchIndexError
from babelens.configuration.locks import locked_folder
from babelens.search import build_index, open_index
from babelens.search.lance_table import connect, rows_of

VECTORS = unit(np.random.default_rng(0), 60)
CHANGES = {
    "add": lambda index: index.add(source_of(VECTORS[40:], 40)),
    "delete": lambda index: index.delete(["000003.jpg"]),
    "compact": lambda index: index.compact(),
}


def state(folder):
    return sorted(hit.id for hit in open_index(folder).search(VECTORS[:1], 99)[0])


def prepare(folder):
    index = build_index(folder, source_of(VECTORS[:40]))
    index.delete(["000002.jpg"])
    return index


def test_a_database_of_the_users_is_not_deleted(tmp_path):
    """A folder `lance` that no build of ours has begun."""
    mine = tmp_path / "index" / "lance" / "photos.lance" / "data.bin"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(SaveError, match="lance"):
        build_index(tmp_path / "index", source_of(VECTORS[:40]))
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("change", ["build", "add"])
def test_a_kill_leaves_the_earlier_index(change, tmp_path):
    """LanceDB's threads do not survive a fork: the kill is in a process of its own, while vectors are read."""
    folder = tmp_path / "index"
    if change == "add":
        prepare(folder)
        before = state(folder)
    call = {"build": f"build_index({str(folder)!r}, source)", "add": f"open_index({str(folder)!r}).add(source)"}[
        change
    ]
    program = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from index_vectors import source_of, unit
from babelens.search import build_index, open_index
from babelens.search.lance_table import connect, rows_of
import numpy as np
from dataclasses import replace
drawn = source_of(unit(np.random.default_rng(1), 20), 40)
def read():
    yield next(drawn.read())
    os.kill(os.getpid(), signal.SIGKILL)
source = replace(drawn, read=read)
{call}
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == -9
    if change == "add":
        assert state(folder) == before
        assert CHANGES["add"](open_index(folder)) == 20
        return
    with pytest.raises(SearchIndexError, match="is not an index"):
        open_index(folder)
    assert build_index(folder, source_of(VECTORS)).stat().vectors == 60


def test_one_of_two_writers_is_told_why_it_stops(tmp_path):
    index = prepare(tmp_path / "index")
    with locked_folder(tmp_path / "index"):
        for change in CHANGES.values():
            with pytest.raises(SaveError, match=f"is in use by process {os.getpid()}"):
                change(index)
        assert len(index.search(VECTORS[:1], 99)[0]) == 39  # readers go on
    (tmp_path / "new").mkdir()
    with locked_folder(tmp_path / "new"), pytest.raises(SaveError, match="is in use by"):
        build_index(tmp_path / "new", source_of(VECTORS))


def test_an_open_index_goes_on_while_another_one_changes_it(tmp_path):
    reader, writer = prepare(tmp_path / "index"), open_index(tmp_path / "index")
    before = [hit.id for hit in reader.search(VECTORS[:1], 99)[0]]
    writer.add(source_of(VECTORS[40:], 40))
    writer.compact()
    assert [hit.id for hit in reader.search(VECTORS[:1], 99)[0]] == before
    assert reader.delete(["000041.jpg"]) == 1  # a change begins with what the index is now
    assert reader.stat().vectors == 58


def test_a_full_disk_leaves_the_earlier_index(tmp_path):
    index = prepare(tmp_path / "index")
    before = state(tmp_path / "index")
    with full_disk(300):
        for change in (CHANGES["add"], CHANGES["delete"]):
            with pytest.raises(SaveError, match="could not be written"):
                change(index)
        with pytest.raises(SaveError, match="could not be written"):
            build_index(tmp_path / "new", source_of(VECTORS))
    assert state(tmp_path / "index") == before and open_index(tmp_path / "index").stat().vectors == 39
    assert not (tmp_path / "new").exists()


def lance_file(folder, pattern):
    return max(folder.rglob(pattern), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("damage", ["no list", "no engine", "later", "rows", "versions", "length"])
def test_damage_is_named(damage, tmp_path):
    folder = tmp_path / "index"
    prepare(folder)
    if damage in ("rows", "versions"):
        file = lance_file(folder, "*.lance" if damage == "rows" else "*.manifest")
        for each in file.parent.iterdir():
            each.write_bytes(each.read_bytes()[:-100])
    elif damage == "length":  # of a part, by which LanceDB panics
        for each in folder.rglob("*.manifest"):
            each.write_bytes(struct.pack("<Q", 2**63 - 1) + each.read_bytes()[8:])
    else:
        stated = {"no list": [], "no engine": {"format": 1}, "later": {"format": 9, "engine": "lance"}}[damage]
        (folder / "index.json").write_text(json.dumps(stated))
    with pytest.raises(SearchIndexError, match=r"damaged|another version|LanceDB failed"):
        open_index(folder).search(VECTORS[:1])


@pytest.mark.parametrize("stated", [{"format": 1, "engine": "exact"}, {"format": 9, "engine": "lance"}])
def test_indexes_of_other_versions_are_to_be_built_anew(stated, tmp_path):
    (tmp_path / "index.json").write_text(json.dumps(stated))
    with pytest.raises(SearchIndexError, match="another version of babelens: build it anew by `babelens index build`"):
        open_index(tmp_path)
    with pytest.raises(SaveError, match="has an index already"):
        build_index(tmp_path, source_of(VECTORS))


def test_an_index_of_lancedb_of_an_earlier_version_opens(tmp_path):
    """Whose own settings of searches are forgotten."""
    parameters = {"neighbors": None, "ef_construction": None, "lists": 7, "sub_vectors": None}
    parameters |= {"search": {"ef_search": None, "nprobe": 3, "refine": None, "exact": False}}
    source = source_of(VECTORS)
    stated = {"info": asdict(source.info), "parameters": parameters}
    schema = source.schema.append(pa.field("embedding", pa.list_(pa.float16(), source.info.dimension)))
    schema = schema.with_metadata({"babelens": json.dumps(stated)})
    with rows_of(source, schema) as reader:
        connect(tmp_path).create_table("vectors", reader, schema=schema)
    manifest = {"format": 1, "engine": "lance", **stated, "rows": {}, "deleted": None, "graph": None, "change": 1}
    (tmp_path / "index.json").write_text(json.dumps(manifest))
    index = open_index(tmp_path)
    assert index.engine == "ivf-pq"
    assert index.search(VECTORS[5:6], 1)[0][0].id == "000005.jpg"
    assert index.delete(["000005.jpg"]) == 1 and open_index(tmp_path).stat().vectors == 59
