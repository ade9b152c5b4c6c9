import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.inference.embed import INFO, EmbeddingsInfo, shard_file
from babelens.search import build_index, open_index
from babelens.utils.errors import CorpusError, InputError

WIDTH = 16


def unit(random, rows, width=WIDTH):
    drawn = random.standard_normal((rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)


def clustered(random, rows, width, latent=24):
    centers = random.standard_normal((rows // 100, latent))[random.integers(rows // 100, size=rows)]
    points = (centers + 0.7 * random.standard_normal((rows, latent))) @ random.standard_normal((latent, width))
    points += 0.05 * random.standard_normal((rows, width))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)


def embedded(folder, vectors, *, ids=None, fingerprint="f" * 24):
    folder.mkdir(parents=True)
    info = EmbeddingsInfo("a/model", fingerprint, vectors.shape[1])
    (folder / INFO).write_text(json.dumps(asdict(info)))
    numbers = range(len(vectors))
    ids = ids or [f"{number:06d}.jpg" for number in numbers]
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
            "width": pa.array([number if number % 7 else None for number in numbers], pa.int32()),
            "license": [["cc0", "it's mine", None][number % 3] for number in numbers],
            "taken": pa.array(list(numbers), pa.int32()).cast(pa.date32()),
        }
    )
    half = len(vectors) // 2
    for number, part in enumerate((table[:half], table[half:])):
        pq.write_table(part, shard_file(folder, number))
    return folder


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def cells(monkeypatch):
    """Few vectors get the cells of many."""
    monkeypatch.setattr("babelens.search.lance._CELLED", 100)


def brute_force(vectors, queries, top, keep=None):
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    if keep is not None:
        scores[:, ~keep] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(scores, order, axis=1)


def numbers(hits):
    return [int(hit.id[:6]) for hit in hits]


def test_a_scan_finds_what_brute_force_finds(tmp_path, random):
    vectors, queries = unit(random, 500), unit(random, 7).astype(np.float32)
    build_index(tmp_path / "index", embedded(tmp_path / "vectors", vectors))
    index = open_index(tmp_path / "index")
    order, scores = brute_force(vectors, queries, 10)
    found = index.search(queries, 10)
    assert [numbers(hits) for hits in found] == order.tolist()
    np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], scores, atol=1e-6)
    assert found[0][0].metadata.keys() == {"width", "license", "taken"}
    assert len(index.search(queries[:1], 999)[0]) == len(index) == 500
    assert index.search(queries[:0], 5) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["index", "vectors"]


def test_cells_find_nearly_all_of_clustered_vectors(tmp_path, random, cells):
    vectors = clustered(random, 6000, 64)
    index = build_index(tmp_path / "index", embedded(tmp_path / "vectors", vectors), approximate=True)
    queries = vectors[::60].astype(np.float32)
    expected = brute_force(vectors, queries, 10)[0]
    found = [numbers(hits) for hits in index.search(queries, 10)]
    assert np.mean([len({*one} & {*other}) for one, other in zip(found, expected.tolist(), strict=True)]) >= 9.5


@pytest.mark.parametrize("approximate", [False, True])
def test_filters_keep_their_vectors(tmp_path, random, cells, approximate):
    """The last filter's vectors are far from the query, in cells that are not searched first."""
    vectors, query = unit(random, 500), unit(random, 1).astype(np.float32)
    index = build_index(tmp_path / "index", embedded(tmp_path / "vectors", vectors), approximate=approximate)
    far = int(np.argmin(vectors.astype(np.float32) @ query[0]))
    filters = {
        "width > 300": lambda n: n % 7 != 0 and n > 300,
        "width IS NULL": lambda n: n % 7 == 0,
        "license = 'it''s mine' OR license IS NULL": lambda n: n % 3 != 0,
        "taken >= date '1971-01-01'": lambda n: n >= 365,
        f"id = '{far:06d}.jpg'": lambda n: n == far,
    }
    for where, fits in filters.items():
        keep = np.array([fits(number) for number in range(500)])
        found = numbers(index.search(query, 5, where=where)[0])
        assert keep[found].all() and len(found) == min(5, keep.sum()), where
        assert found[0] == brute_force(vectors, query, 1, keep)[0][0, 0], where


def test_what_cannot_be_searched_is_refused(tmp_path, random):
    index = build_index(tmp_path / "index", embedded(tmp_path / "vectors", unit(random, 50)))
    for where in ("breadth > 3", "width >", "width > 'wide'", ""):
        with pytest.raises(InputError):
            index.search(unit(random, 1), where=where)
    with pytest.raises(InputError):
        index.search(unit(random, 1, 8))
    with pytest.raises(InputError, match="finite"):
        index.search(np.full((1, 16), np.nan))
    for address in (tmp_path, tmp_path / "nothing", f"file://{tmp_path}/elsewhere"):
        with pytest.raises(InputError):
            open_index(address)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda v: (v, {"ids": ["a", "b", "c", "a"]}), CorpusError, "occurs twice"),
        (lambda v: (v, {"ids": ["a", "b", "", "d"]}), CorpusError, "no id"),
        (lambda v: (v * np.array([[1], [1], [1], [np.nan]]), {}), CorpusError, "000003.jpg"),
        (lambda v: (v * np.array([[1], [1], [1], [2]]), {}), CorpusError, "000003.jpg has length 2"),
        (lambda v: (v[:0], {}), InputError, "no vectors"),
    ],
)
def test_vectors_that_cannot_be_used_leave_nothing(tmp_path, random, change, error, why):
    vectors, options = change(unit(random, 4))
    with pytest.raises(error, match=why):
        build_index(tmp_path / "index", embedded(tmp_path / "vectors", vectors.astype(np.float16), **options))
    assert [each.name for each in tmp_path.iterdir()] == ["vectors"]


def test_files_and_other_indexes_are_not_replaced(tmp_path, random):
    source = embedded(tmp_path / "vectors", unit(random, 50))
    build_index(tmp_path / "index", source)
    for taken in (tmp_path, tmp_path / "index"):
        with pytest.raises(InputError, match=taken.name):
            build_index(taken, source)
    address = f"file://{tmp_path}/store"
    build_index(address, source)
    assert len(open_index(address)) == 50
    with pytest.raises(InputError, match=r"store: .*already exists"):
        build_index(address, source)
    assert len(open_index(address)) == 50


def test_a_shard_that_cannot_be_used(random, tmp_path):
    folder = embedded(tmp_path / "vectors", unit(random, 10))
    file = shard_file(folder, 1)
    whole, table = file.read_bytes(), pq.read_table(file)
    missing_vector = pa.array([None, *table["embedding"].to_pylist()[1:]], table["embedding"].type)
    for changed in (
        table.set_column(1, "embedding", missing_vector),
        table.set_column(2, "width", pa.array(["wide"] * 5)),
        table.drop_columns(["embedding"]),
        table.drop_columns(["id"]),
        None,
    ):
        if changed is None:
            file.write_bytes(whole[:-50])
        else:
            pq.write_table(changed, file)
        with pytest.raises(CorpusError, match=file.name):
            build_index(tmp_path / "index", folder)
        assert not (tmp_path / "index").exists()
