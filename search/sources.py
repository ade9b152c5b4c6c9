"""What an index is built from: embeddings with their ids and metadata, some thousand at a time.

A source is a folder of shards or a parquet file of `babelens embed`, a folder of images, or another index. It states
which model computed its embeddings, and is read as often as needed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq

from ..inference.embedding_shards import (
    EMBEDDING,
    ID,
    INFO,
    EmbeddingsInfo,
    embedding_width,
    errors_of_rows,
    read_embeddings,
    read_info,
    shard_files,
)
from ..processing.images import readable_formats
from ..utils.errors import CorpusError, InputError, NonFiniteError

if TYPE_CHECKING:
    from ..inference.embedder import Embedder

_FILE = "file"  # the column of names in a .parquet file of `babelens embed`
_ROWS_AT_ONCE = 16_384
_LENGTH_TOLERANCE = 0.01  # float16 vectors of 1000 dimensions differ from length 1 by some ten-thousandths

Batch = tuple[pa.Table, np.ndarray]  # the columns `id` and metadata, and the vectors, float16 [n, d]


@dataclass(frozen=True)
class VectorSource:
    """Embeddings with their ids and metadata.

    Args:
        info: the model that computed them, and their width.
        schema: the columns of their rows: `id` and metadata.
        read: begins to read them.
        called: what error messages call them.
    """

    info: EmbeddingsInfo
    schema: pa.Schema
    read: Callable[[], Iterator[Batch]]
    called: str

    def __iter__(self) -> Iterator[Batch]:
        """The rows in batches, checked."""
        hashes: list[np.ndarray] = []
        for rows, vectors in self.read():
            ids = rows[ID].to_pylist()
            hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
            self._check(ids, vectors)
            yield rows.select(self.schema.names).cast(self.schema), np.ascontiguousarray(vectors, dtype=np.float16)
        if hashes:
            self._refuse_duplicates(np.concatenate(hashes))

    def _check(self, ids: list[str | None], vectors: np.ndarray) -> None:
        if None in ids or "" in ids:
            raise InputError(f"{self.called}: a row has no id")
        if vectors.shape[1] != self.info.dimension:
            raise InputError(
                f"{self.called}: {ids[0]} has a vector of {vectors.shape[1]} dimensions in the place of "
                f"{self.info.dimension}"
            )
        lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float32, casting="same_kind"))
        if not np.isfinite(lengths).all():
            raise NonFiniteError(
                f"{self.called}: the vector of {ids[int(np.argmin(np.isfinite(lengths)))]} is not finite"
            )
        if (bad := abs(lengths - 1) > _LENGTH_TOLERANCE).any():
            first = int(np.argmax(bad))
            raise InputError(
                f"{self.called}: the vector of {ids[first]} has length {lengths[first]:.3f} in the place of 1"
            )

    def _refuse_duplicates(self, hashes: np.ndarray) -> None:
        """Refuses an id that occurs twice; hashes find those that may, at 8 bytes each, and a second reading tells."""
        values, counts = np.unique(hashes, return_counts=True)
        suspects = set(values[counts > 1].tolist())
        seen: set[str] = set()
        for rows, _ in self.read() if suspects else ():
            for each in rows[ID].to_pylist():
                if hash(each) in suspects:
                    if each in seen:
                        raise InputError(f"{self.called}: the id {each} occurs twice")
                    seen.add(each)


def embeddings_source(path: Path, info: EmbeddingsInfo | None = None) -> VectorSource:
    """The embeddings in a folder of shards, or in a .parquet file, of `babelens embed`.

    Args:
        path: the folder or the file. A file has the embeddings of images, in the columns `file` (or `id`) and
            `embedding`.
        info: the model that computed the embeddings of a file, which does not state it; its dimension is read from
            the file.
    """
    if path.is_dir():
        return _shards_source(path)
    if info is None:
        raise CorpusError(f"{path} does not state which model computed its embeddings: name the model")
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path} is no parquet file of `babelens embed`: {error}") from error
    names = {ID, _FILE} & set(schema.names)
    width = embedding_width(schema)
    if not names or width is None:
        raise CorpusError(
            f"{path} has the columns {', '.join(schema.names)}; embeddings of images have `{_FILE}` or `{ID}`, and "
            f"`{EMBEDDING}`, a list of fixed length"
        )
    name = ID if ID in names else _FILE

    def read() -> Iterator[Batch]:
        with errors_of_rows(path):
            for batch, vectors in read_embeddings(path):
                yield _with_id(pa.Table.from_batches([batch]), name), vectors

    with errors_of_rows(path):
        columns = _row_schema(schema, name)
    return VectorSource(replace(info, dimension=width), columns, read, str(path))


def images_source(embedder: "Embedder", model: str, folder: Path) -> VectorSource:
    """The images of a folder and its subfolders, encoded; their ids are their paths below the folder.

    The columns `width` and `height` have the size of each image in pixels, upright. Embeddings are kept in the cache
    that `babelens search` uses.

    Args:
        embedder: the model.
        model: its folder or repository, which the index states.
        folder: the folder.
    """
    from ..inference.image_index import ImageIndex, image_cache
    from ..utils.identity import index_identity

    index = ImageIndex.of_folder(embedder, folder, cache=image_cache(), utf8_names=True)
    names = [path.relative_to(folder).as_posix() for path in index.paths]
    schema = pa.schema([(ID, pa.string()), ("width", pa.int32()), ("height", pa.int32())])

    def read() -> Iterator[Batch]:
        for start in range(0, len(index.paths), _ROWS_AT_ONCE):
            paths = index.paths[start : start + _ROWS_AT_ONCE]
            widths, heights = zip(*map(_size, paths), strict=True)
            ids = names[start : start + len(paths)]
            yield pa.table([ids, widths, heights], schema=schema), index.embeddings[start : start + len(paths)]

    info = EmbeddingsInfo(model, index_identity(embedder.model, embedder.processor), index.embeddings.shape[1])
    return VectorSource(info, schema, read, str(folder))


def _size(path: Path) -> tuple[int, int]:
    """The width and the height of an image as it is shown: a camera that is held upright turns its files by Exif."""
    with PIL.Image.open(path, formats=readable_formats()) as image:
        width, height = image.size
        is_turned = image.getexif().get(PIL.Image.ExifTags.Base.Orientation, 1) >= 5
    return (height, width) if is_turned else (width, height)


def _shards_source(folder: Path) -> VectorSource:
    info = read_info(folder)
    files = shard_files(folder)
    if not files:
        raise CorpusError(f"{folder} has an {INFO} and no shards of embeddings")
    with errors_of_rows(files[0]):
        schema = pq.read_schema(files[0])
        if ID not in schema.names or embedding_width(schema) is None:
            raise CorpusError(f"{files[0]} lacks `{ID}` or `{EMBEDDING}`, a list of fixed length")
        columns = _row_schema(schema, ID)

    def read() -> Iterator[Batch]:
        for file in files:
            with errors_of_rows(file):
                for batch, vectors in read_embeddings(file):
                    rows = _with_id(pa.Table.from_batches([batch]), ID)
                    if rows.schema.names != columns.names:
                        raise CorpusError(
                            f"{folder}: the shards have different columns: {columns.names}, {rows.schema.names}"
                        )
                    yield rows.cast(columns), vectors

    return VectorSource(info, columns, read, str(folder))


def _with_id(table: pa.Table, name: str) -> pa.Table:
    """The columns of an index: `id`, which the table calls `name`, and metadata."""
    table = table.drop_columns([EMBEDDING])
    rest = table.drop_columns([name])
    columns = {field.name: _plain(table[field.name]) for field in rest.schema}
    return pa.table({ID: table[name].cast(pa.string()), **columns})


def _row_schema(schema: pa.Schema, name: str) -> pa.Schema:
    return _with_id(schema.empty_table(), name).schema


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose values stand in it: dictionaries, which differ between files, are left aside."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
