"""Embeddings that cannot be used are named before an index is made of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.inference.embedding_shards import EmbeddingsInfo, shard_file, shard_table, write_info
from babelens.search import build_index, embeddings_source
from babelens.utils.errors import CorpusError
from tests.support.index_vectors import unit


@pytest.fixture
def folder(tmp_path):
    """Two shards with a column of numbers."""
    folder = tmp_path / "embedded"
    folder.mkdir()
    write_info(folder, EmbeddingsInfo("runs/mural", "a" * 24, 16))
    for number in range(2):
        ids = [f"{number}-{row}.jpg" for row in range(9)]
        vectors = unit(np.random.default_rng(number), 9)
        pq.write_table(shard_table(ids, vectors, pa.table({"width": range(9)})), shard_file(folder, number))
    return folder


def missing_vector(table):
    vectors = pa.array([None, *table["embedding"].to_pylist()[1:]], table["embedding"].type)
    return table.set_column(1, "embedding", vectors)


def missing_number(table):
    first, *others = table["embedding"].to_pylist()
    return table.set_column(1, "embedding", pa.array([[None, *first[1:]], *others], table["embedding"].type))


def any_length(table):
    return table.set_column(1, "embedding", pa.array(table["embedding"].to_pylist(), pa.list_(pa.float32())))


def no_vectors(table):
    return table.drop_columns(["embedding"])


def no_ids(table):
    return table.drop_columns(["id"])


def bytes_as_ids(table):
    return table.set_column(0, "id", pa.array([b"\xff%d" % row for row in range(9)]))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "change", [missing_vector, missing_number, any_length, no_vectors, no_ids, bytes_as_ids, "cut off"]
)
def test_a_shard_that_cannot_be_used(change, number, folder, tmp_path):
    file = shard_file(folder, number)
    if change == "cut off":
        file.write_bytes(file.read_bytes()[:-50])
    else:
        pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(CorpusError, match=file.name):
        build_index(tmp_path / "index", embeddings_source(folder))
    assert not (tmp_path / "index").exists()


def test_a_shard_whose_metadata_are_of_another_type(folder, tmp_path):
    file = shard_file(folder, 1)
    pq.write_table(pq.read_table(file).set_column(2, "width", pa.array(["wide"] * 9)), file)
    with pytest.raises(CorpusError, match=rf"{file.name} cannot be used: .*'wide'"):
        build_index(tmp_path / "index", embeddings_source(folder))


def test_numbers_of_64_bits(folder, tmp_path):
    file = shard_file(folder, 0)
    table = pq.read_table(file)
    vectors = pa.array(table["embedding"].to_pylist(), pa.list_(pa.float64(), 16))
    pq.write_table(table.set_column(1, "embedding", vectors), file)
    assert len(build_index(tmp_path / "index", embeddings_source(folder))) == 18
