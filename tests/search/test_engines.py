"""What every engine of an index keeps: exactness or recall, filters, deletion, saving, one model."""

import sys

import numpy as np
import pytest
from index_vectors import SCHEMA, clustered, source_of, unit

from babelens.configuration.errors import (
    FilterError,
    InputError,
    MissingExtraError,
    ModelMismatchError,
    NonFiniteError,
    SaveError,
    SearchIndexError,
)
from babelens.search import (
    SearchSettings,
    build_index,
    measured_recall,
    open_index,
    search_merged,
)

ENGINES = ["exact", "hnsw", "ivf-pq"]
APPROXIMATE = ["hnsw", "ivf-pq"]


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def approximate(monkeypatch):
    """Few vectors are searched as many are."""
    monkeypatch.setattr("babelens.search.vector_index._SCANNED", 100)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return build_index(tmp_path_factory.mktemp("few"), source_of(unit(np.random.default_rng(0), 10)))


def brute_force(vectors, queries, top, keep=None):
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    if keep is not None:
        scores[:, ~keep] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(scores, order, axis=1)


def ids(hits):
    return [hit.id for hit in hits]


def numbers(hits):
    return [int(hit.id[:6]) for hit in hits]


def test_a_small_index_finds_what_brute_force_finds(engine, tmp_path, random):
    vectors, queries = unit(random, 500), unit(random, 7).astype(np.float32)
    build_index(tmp_path / "index", source_of(vectors), engine)
    index = open_index(tmp_path / "index")
    order, scores = brute_force(vectors, queries, 10)
    found = index.search(queries, 10)
    assert [numbers(hits) for hits in found] == order.tolist()
    np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], scores, atol=1e-6)
    hit = found[0][0]
    assert hit.metadata.keys() == {"width", "license", "taken"}
    assert len(index.search(queries[:1], 999)[0]) == 500
    assert index.search(queries[:0], 5) == []


FILTERS = {
    "width > 300": lambda n: n % 7 != 0 and n > 300,
    "NOT (width > 300)": lambda n: n % 7 != 0 and n <= 300,
    "width BETWEEN 100 AND 199 or 480 < width": lambda n: n % 7 != 0 and (100 <= n < 200 or n > 480),
    "width IS NULL": lambda n: n % 7 == 0,
    "license = 'it''s mine' AND width IS NOT NULL": lambda n: n % 3 == 1 and n % 7 != 0,
    "license IN ('cc0', 'x')": lambda n: n % 3 == 0,
    "license NOT IN ('cc0', 'x')": lambda n: n % 3 == 1,
    "license LIKE 'it%'": lambda n: n % 3 == 1,
    "license != 'cc0'": lambda n: n % 3 == 1,
    "id < '000123.jpg'": lambda n: n < 123,
    "taken >= date '1971-01-01'": lambda n: n >= 365,
    "width == -1": lambda n: False,
}


@pytest.mark.parametrize("cells", [False, True])
def test_filters_keep_the_same_vectors_in_every_engine(engine, cells, tmp_path, random, request):
    if cells:
        request.getfixturevalue("approximate")
    vectors, query = unit(random, 500), unit(random, 1).astype(np.float32)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    for where, fits in FILTERS.items():
        keep = np.array([fits(number) for number in range(500)])
        top = min(5, int(keep.sum()))
        found = numbers(index.search(query, 5, where=where)[0])
        assert keep[found].all(), where
        expected = brute_force(vectors, query, top, keep)[0][0]
        if cells and engine in APPROXIMATE:
            assert len(set(found) & set(expected)) >= top - 1, where
        else:
            assert found == expected.tolist(), where


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("breadth > 3", "No field named breadth"),
        ('license = "cc0"', "No field named cc0.*; texts stand in single quotes"),
        ("width >", "is not a filter in SQL.*Expected"),
        ("width > 3; DROP TABLE vectors", "is not a filter"),
        ("width > 'wide'", "could not convert"),
        ("width", "is not a filter"),
        ("", "is not a filter"),
        ("license = '\udcff'", "surrogates"),
    ],
)
def test_wrong_filters_are_refused(random, few, where, why):
    with pytest.raises(FilterError, match=why):
        few.search(unit(random, 1), where=where)
    with pytest.raises(FilterError, match=why):
        few.delete(where=where)


def test_very_few_vectors(engine, tmp_path, random):
    vectors = unit(random, 20)
    index = build_index(tmp_path / "index", source_of(vectors[:1]), engine)
    assert numbers(index.search(vectors[:1], 5)[0]) == [0]
    index.add(source_of(vectors[1:], 1))
    index.delete(where="id > '000002.jpg'")
    index.compact()
    order, _ = brute_force(vectors[:3], vectors[:1], 5)
    assert numbers(index.search(vectors[:1], 5)[0]) == order[0].tolist()


def test_an_index_of_which_all_is_deleted(engine, tmp_path, random):
    vectors = unit(random, 20)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    assert index.delete(where="width >= 0 OR width IS NULL") == 20
    index.compact()
    for opened in (index, open_index(tmp_path / "index")):
        assert opened.stat().vectors == 0 and opened.search(vectors[:1]) == [[]]
    assert index.add(source_of(vectors[:2])) == 2
    index.compact()
    assert index.stat().vectors == 2
    assert numbers(index.search(vectors[1:2], 1)[0]) == [1]


@pytest.mark.parametrize("cells", [False, True])
def test_adding_deleting_and_compacting(engine, cells, tmp_path, random, request):
    if cells:
        request.getfixturevalue("approximate")
    vectors, queries = unit(random, 400), unit(random, 5).astype(np.float32)
    index = build_index(tmp_path / "index", source_of(vectors[:300]), engine)
    assert index.add(source_of(vectors[300:], 300)) == 100
    keep = np.ones(400, dtype=bool)
    exact = SearchSettings(exact=True)

    def check():
        for opened in (index, open_index(tmp_path / "index")):
            expected = brute_force(vectors, queries, 10, keep)[0]
            assert [numbers(hits) for hits in opened.search(queries, 10, settings=exact)] == expected.tolist()
            assert all(keep[numbers(hits)].all() for hits in opened.search(queries, 10))
            found = [
                len(set(numbers(hits)) & set(e)) for hits, e in zip(opened.search(queries, 10), expected, strict=True)
            ]
            assert np.mean(found) >= (7 if cells and engine in APPROXIMATE else 10)
            assert opened.stat().vectors == keep.sum()

    check()
    assert index.delete(["000000.jpg", "000350.jpg", "000350.jpg"]) == 2
    keep[[0, 350]] = False
    check()
    assert index.delete(["000001.jpg"], where="width > 380") == 1 + sum(n % 7 != 0 for n in range(381, 400))
    keep[1] = False
    keep[[n for n in range(381, 400) if n % 7]] = False
    check()
    assert index.delete(where="width == -1") == 0
    index.compact()
    check()
    assert index.add(source_of(vectors[:1], 0)) == 1  # a deleted id may come again
    keep[0] = True
    assert index.stat().vectors == keep.sum()


@pytest.mark.parametrize("engine", APPROXIMATE)
def test_recall_of_the_defaults_on_clustered_vectors(engine, tmp_path, random, approximate):
    index = build_index(tmp_path / "index", source_of(clustered(random, 6000, 64)), engine)
    assert measured_recall(index, samples=100) >= 0.95


def test_an_index_that_has_grown_gets_cells(tmp_path, random, approximate):
    vectors = clustered(random, 3000, 64)
    index = build_index(tmp_path / "index", source_of(vectors[:50]), "ivf-pq")
    index.add(source_of(vectors[50:], 50))
    index.compact()
    assert measured_recall(index, SearchSettings(nprobe=1, refine=1), samples=30) < 1  # as a scan never is
    assert measured_recall(index, SearchSettings(exact=True), samples=30) == 1


@pytest.mark.parametrize("engine", APPROXIMATE)
def test_vectors_of_a_filter_that_are_far_from_the_query(engine, tmp_path, random, approximate):
    """Those of the filter lie in one half of the sphere, and the query in the other one."""
    vectors = unit(random, 4000)
    vectors = vectors[np.argsort(vectors[:, 0], kind="stable")]
    query = np.eye(1, 16, dtype=np.float32)
    settings = {"hnsw": {"ef_search": 4000}}.get(engine, {"nprobe": 1, "refine": 1})  # one cell, or the whole graph
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    (hits,) = index.search(query, 10, where="id < '000400.jpg'", settings=SearchSettings(**settings))
    assert numbers(hits) == brute_force(vectors[:400], query, 10)[0][0].tolist()
    (hits,) = index.search(query, 3999, settings=SearchSettings(**settings))
    assert len(hits) == 3999


@pytest.mark.parametrize("engine", APPROXIMATE)
def test_settings_beyond_what_an_index_has(engine, tmp_path, random, approximate):
    vectors = unit(random, 600)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    settings = [{"ef_search": 10**12}] * (engine == "hnsw") + [{"nprobe": 10**12}, {"refine": 10**12}]
    for each in (*settings, {}):
        for top in (5, 10**9):
            (hits,) = index.search(vectors[:1], top, settings=SearchSettings(**each))
            assert numbers(hits)[0] == 0 and len(hits) == min(top, 600)


@pytest.mark.parametrize(
    ("engine", "less", "more"),
    [
        ("hnsw", {"ef_search": 1, "refine": 1}, {"ef_search": 1000}),
        ("ivf-pq", {"nprobe": 1}, {"nprobe": 75}),
        ("ivf-pq", {"nprobe": 75, "refine": 1}, {"nprobe": 75, "refine": 20}),
    ],
)
def test_more_thorough_searches_find_more(engine, less, more, tmp_path, random, approximate, monkeypatch):
    for name in ("_LINKS", "_LINK_CANDIDATES"):
        monkeypatch.setattr(f"babelens.search.vector_index.{name}", 4)
    index = build_index(tmp_path / "index", source_of(unit(random, 3000, 64)), engine)
    found = [measured_recall(index, SearchSettings(**each), samples=30) for each in (less, more)]
    assert found[0] + 0.05 < found[1], found
    assert measured_recall(index, SearchSettings(exact=True), samples=30) == 1


def test_scans_are_exact_among_vectors_that_differ_by_less_than_float16_tells(tmp_path, random):
    """LanceDB rounds queries to float16, and orders such vectors otherwise."""
    centre = random.standard_normal(64)
    near = centre + 0.002 * random.standard_normal((400, 64))
    vectors = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float16)
    query = (centre / np.linalg.norm(centre)).astype(np.float32)[None]
    index = build_index(tmp_path / "index", source_of(vectors))
    scores = query @ vectors.astype(np.float32).T
    assert [hit.score for hit in index.search(query, 5)[0]] == pytest.approx(np.sort(scores[0])[::-1][:5], abs=1e-7)


def test_a_copy_and_a_copy_of_another_engine(engine, tmp_path, random):
    vectors, queries = unit(random, 300), unit(random, 3)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    index.delete(["000004.jpg"])
    exact = index.save(tmp_path / "exact", "exact")
    same = exact.save(tmp_path / "same", engine)
    for copy in (exact, same, index.save(tmp_path / "copy")):
        assert [ids(hits) for hits in copy.search(queries)] == [ids(hits) for hits in index.search(queries)]
        assert copy.stat().vectors == 299 and copy.schema == SCHEMA


def test_an_index_states_its_model_and_refuses_others(engine, tmp_path, random):
    index = build_index(tmp_path / "index", source_of(unit(random, 50)), engine)
    stat = index.stat()
    assert (stat.engine, stat.model, stat.fingerprint, stat.dimension) == (engine, "a/model", "f" * 24, 16)
    assert stat.columns == {"width": "int32", "license": "string", "taken": "date32[day]"} and stat.bytes > 1600
    with pytest.raises(ModelMismatchError, match="not comparable"):
        index.add(source_of(unit(random, 5), 50, fingerprint="e" * 24))
    with pytest.raises(ModelMismatchError, match="16 dimensions"):
        index.search(unit(random, 1, 8))
    with pytest.raises(ModelMismatchError):
        index.search(unit(random, 1)[0])


def test_wrong_vectors_are_refused_and_change_nothing(engine, tmp_path, random):
    vectors = unit(random, 50)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    nan, long = unit(random, 4), unit(random, 4)
    nan[3, 2], long[3] = np.nan, 2 * long[3]
    narrow = SCHEMA.remove(1)
    for source, error, why in (
        (source_of(unit(random, 4), 47), InputError, "has the id 000047.jpg already"),
        (source_of(unit(random, 4), ids=["a", "b", "c", "a"]), InputError, "the id a occurs twice"),
        (source_of(unit(random, 4), ids=["a", "b", "", "d"]), InputError, "no id"),
        (source_of(nan, 60), NonFiniteError, "000063.jpg"),
        (source_of(long, 60), InputError, "000063.jpg has length 2"),
        (source_of(unit(random, 4), 60, schema=narrow), SearchIndexError, "the index has id .*width"),
    ):
        with pytest.raises(error, match=why):
            index.add(source)
        with pytest.raises(InputError, match="no vector with the id 'nothing'"):
            index.delete(["000001.jpg", "nothing"])
    assert index.stat().vectors == 50 == open_index(tmp_path / "index").stat().vectors
    with pytest.raises(InputError, match="occurs twice"):
        build_index(tmp_path / "new", source_of(unit(random, 4), ids=["a", "b", "c", "a"]), engine)
    assert not (tmp_path / "new").exists()


def test_wrong_calls_are_refused(tmp_path, random):
    source = source_of(unit(random, 50))
    index = build_index(tmp_path / "index", source)
    with pytest.raises(SaveError, match="has an index already"):
        build_index(tmp_path / "index", source, "ivf-pq")
    with pytest.raises(SearchIndexError, match="there is no engine 'annoy'"):
        build_index(tmp_path / "new", source, "annoy")
    with pytest.raises(SearchIndexError, match="exact does not read ef_search: it reads nothing"):
        index.search(unit(random, 1), settings=SearchSettings(ef_search=3))
    approximate = index.save(tmp_path / "approximate", "ivf-pq")
    with pytest.raises(SearchIndexError, match="ivf-pq does not read ef_search: it reads nprobe, refine"):
        approximate.search(unit(random, 1), settings=SearchSettings(ef_search=3))
    with pytest.raises(SearchIndexError, match="nprobe must be at least 1, got 0"):
        approximate.search(unit(random, 1), settings=SearchSettings(nprobe=0))
    with pytest.raises(InputError, match="top must be at least 1"):
        index.search(unit(random, 1), 0)
    with pytest.raises(InputError, match="not finite"):
        index.search(np.full((1, 16), np.nan))
    for engine in ENGINES:
        with pytest.raises(SearchIndexError, match="no vectors"):
            build_index(tmp_path / "new", source_of(unit(random, 0)), engine)
    assert not (tmp_path / "new").exists()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SaveError, match=r"is not an empty folder; it has .*notes\.txt"):
        build_index(tmp_path, source)


def test_an_index_whose_vectors_are_all_deleted(engine, tmp_path, random):
    index = build_index(tmp_path / "index", source_of(unit(random, 50)), engine)
    assert index.delete(where="id IS NOT NULL") == 50
    assert index.search(unit(random, 2), where="width > 3") == [[], []] and index.stat().vectors == 0
    with pytest.raises(SearchIndexError, match="has no vectors"):
        measured_recall(index)
    with pytest.raises((InputError, SearchIndexError), match="udcff"):
        index.delete(["\udcff.jpg"])
    assert index.add(source_of(unit(random, 50))) == 50


def test_a_missing_library_is_named(tmp_path, random, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingExtraError, match=r"pip install lancedb"):
        build_index(tmp_path / "new", source_of(unit(random, 5)))
    assert not (tmp_path / "new").exists()


def test_an_address(tmp_path, random):
    vectors = unit(random, 60)
    address = f"file://{tmp_path}/store"
    build_index(address, source_of(vectors[:50]), "ivf-pq")
    index = open_index(address)
    assert index.engine == "ivf-pq"
    assert index.add(source_of(vectors[50:], 50)) == 10 and index.stat().vectors == 60 and index.stat().bytes > 0
    assert ids(index.search(vectors[55:56], 1)[0]) == ["000055.jpg"]
    with pytest.raises(SaveError, match="has an index already"):
        build_index(address, source_of(vectors))
    with pytest.raises(SearchIndexError, match="s4://"):
        build_index("s4://bucket/index", source_of(vectors))
    with pytest.raises(SearchIndexError, match="no index of LanceDB"):
        open_index(f"file://{tmp_path}/elsewhere")


def test_merged_queries(engine, tmp_path, random):
    vectors, queries = unit(random, 300), unit(random, 3).astype(np.float32)
    index = build_index(tmp_path / "index", source_of(vectors), engine)
    scores = queries @ vectors.astype(np.float32).T
    for merge, merged in (("mean", scores.mean(axis=0)), ("max", scores.max(axis=0))):
        found = search_merged(index, queries, merge=merge, top=8)
        assert numbers(found) == np.argsort(-merged)[:8].tolist()
        np.testing.assert_allclose([hit.score for hit in found], np.sort(merged)[::-1][:8], atol=1e-6)
