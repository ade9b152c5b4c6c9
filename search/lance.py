"""An index of the embeddings of images: a table of LanceDB with the columns `id`, metadata, and float16 vectors.

It is a folder, or any address that LanceDB takes (`s3://bucket/index`, `gs://…`, `az://…`). To add or delete rows,
build the index again, or use LanceDB on the table `vectors`.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ..inference.embedding_shards import EMBEDDING, ID, EmbeddingsInfo
from ..inference.similarity import best_first, first_dimensions
from ..utils.errors import (
    BabelensError,
    FilterError,
    InputError,
    MissingExtraError,
    ModelMismatchError,
    SaveError,
    SearchIndexError,
)
from ..utils.files import errors_naming
from ..utils.identity import index_identity, is_same_model
from ..utils.redaction import redact
from .sources import VectorSource

if TYPE_CHECKING:
    from ..inference.embedder import Embedder, ImageLike

_TABLE, _FACTS = "vectors", b"babelens"
_SPARE = 16  # candidates beside those that are wanted: LanceDB orders them by scores of float16
_CELLED = 10_000  # fewer vectors are scanned as fast as cells of them
_PROBES, _REFINE = 64, 10


@dataclass(frozen=True)
class Hit:
    """What a search found.

    Args:
        id: the id of the vector, such as the path of an image.
        score: the cosine of the vector and the query.
        metadata: the values of the other columns.
    """

    id: str
    score: float
    metadata: dict[str, Any]


def build_index(address: str | Path, source: VectorSource, *, approximate: bool = False) -> "VectorIndex":
    """Makes an index of all vectors of a source.

    Args:
        address: a folder that does not exist, or is empty; or the address of an object store.
        source: the vectors.
        approximate: search the nearest cells of an IVF-PQ, and score candidates by their whole vectors, instead of
            scanning all vectors.
    """
    check_free(address)
    if _is_remote(address):
        return _build(address, address, source, approximate)
    folder = Path(address)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    with errors_naming(address):
        unfinished.mkdir(parents=True)  # with the permissions that the umask says, unlike those of `tempfile`
        try:
            _build(address, unfinished, source, approximate)
            os.replace(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return open_index(address)


def check_free(address: str | Path) -> None:
    """Checks that an index can be built at an address."""
    _library()
    if not _is_remote(address) and Path(address).exists() and (Path(address).is_file() or any(os.scandir(address))):
        raise SaveError(f"{address} exists already: choose another folder")


def _build(address: str | Path, place: str | Path, source: VectorSource, approximate: bool) -> "VectorIndex":
    info = replace(source.info, dtype="float16")
    vectors = pa.field(EMBEDDING, pa.list_(pa.float16(), info.dimension))
    facts = json.dumps({"info": redact(asdict(info))})
    schema = source.schema.append(vectors).with_metadata({_FACTS: facts})
    failed: list[BabelensError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for rows, embeddings in source:
                column = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), info.dimension)
                yield from rows.append_column(EMBEDDING, column).cast(schema).to_batches()
        except BabelensError as error:
            failed.append(error)
            raise

    with _lance_errors(address, failed):
        database = _library().connect(str(place))
        if _TABLE in database.list_tables().tables:
            raise SaveError(f"{address} has an index already: choose another address")
        table = database.create_table(_TABLE, pa.RecordBatchReader.from_batches(schema, batches()), schema=schema)
        count, width = table.count_rows(), info.dimension
        if not count:
            database.drop_table(_TABLE)
            raise SearchIndexError(f"{source.called} has no vectors to search")
        if approximate and count >= _CELLED:
            from lancedb.index import IvfPq

            cells = round(2 * count**0.5)
            pieces = width // 2 if width % 2 == 0 else width
            config = IvfPq(distance_type="dot", num_partitions=cells, num_sub_vectors=pieces, num_bits=4)
            table.create_index(EMBEDDING, config=config)
    return VectorIndex(address, table)


def open_index(address: str | Path) -> "VectorIndex":
    """Opens the index in a folder, or at an address that LanceDB takes."""
    if not _is_remote(address) and not (Path(address) / f"{_TABLE}.lance").is_dir():
        raise SearchIndexError(f"{address} is not an index: `babelens index build` makes one")
    try:
        with _lance_errors(address):
            return VectorIndex(address, _library().connect(str(address)).open_table(_TABLE))
    except (KeyError, TypeError) as error:
        raise SearchIndexError(f"{address} holds no index of babelens, or a damaged one: {error}") from error


class VectorIndex:
    """An index; `build_index` and `open_index` make it.

    Attributes:
        info: the model that computed the vectors, and their width.
        schema: the columns `id` and metadata.
        table: LanceDB's table.
    """

    def __init__(self, address: str | Path, table: Any) -> None:
        self.address, self.table = address, table
        self.info = EmbeddingsInfo(**json.loads(table.schema.metadata[_FACTS])["info"])
        self.schema = pa.schema([field for field in table.schema if field.name != EMBEDDING])
        self.is_approximate = any(EMBEDDING in each.columns for each in table.list_indices())

    def __len__(self) -> int:
        return self.table.count_rows()

    def search(
        self, queries: np.ndarray, top: int = 10, *, where: str | None = None, exact: bool = False
    ) -> list[list[Hit]]:
        """The vectors nearest to each query, nearest first; fewer than `top` when fewer fit the filter.

        Args:
            queries: vectors of length 1, [n_queries, d], of the model that computed the index.
            top: how many vectors to find for a query.
            where: only vectors whose metadata fit this filter, in LanceDB's SQL.
            exact: scan all vectors of an approximate index.
        """
        queries = np.asarray(queries, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.info.dimension:
            raise ModelMismatchError(
                f"queries are [n, {self.info.dimension}] in this index, not {list(queries.shape)}"
            )
        if not np.isfinite(queries).all():
            raise InputError("a query has a value that is not finite")
        if where is not None:
            self._check_filter(where)
        with _lance_errors(self.address):
            return [self._nearest(query, top, where, self.is_approximate and not exact) for query in queries]

    def _nearest(self, query: np.ndarray, top: int, where: str | None, approximate: bool) -> list[Hit]:
        rows = len(self)
        search = self.table.search(query, vector_column_name=EMBEDDING).distance_type("dot")
        search = search.limit(max(1, min(top + _SPARE, rows)))
        if where is not None:
            search = search.where(f"({where})", prefilter=True)
        search = search.nprobes(_PROBES).refine_factor(_REFINE) if approximate else search.bypass_vector_index()
        found = search.select([*self.schema.names, EMBEDDING, "_distance"]).to_arrow()
        if approximate and len(found) < min(top, rows):
            return self._nearest(query, top, where, False)  # what a filter keeps may lie in other cells
        vectors = found[EMBEDDING].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        scores = vectors.reshape(-1, self.info.dimension).astype(np.float32) @ query
        best = best_first(scores, top)
        values = found.select(self.schema.names).take(best).to_pylist()
        return [Hit(row.pop(ID), float(score), row) for row, score in zip(values, scores[best], strict=True)]

    def _check_filter(self, where: str) -> None:
        try:
            self.table.search().where(f"({where})").limit(1).to_arrow()
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition(", /")[0]  # without places in LanceDB's source
            raise FilterError(
                f"{where!r} is not a filter in LanceDB's SQL, such as `width > 500`: {reason}"
            ) from error

    def check_model(self, fingerprint: str, called: str) -> None:
        """Checks that embeddings are of the model of this index."""
        if not is_same_model(self.info.fingerprint, fingerprint, f"the index of {self.info.model}"):
            raise ModelMismatchError(
                f"the index has embeddings of {self.info.model} ({self.info.fingerprint}), and {called} is another "
                f"model or another version of it ({fingerprint}): their embeddings are not comparable"
            )


def search_index(
    index: VectorIndex,
    embedder: "Embedder",
    texts: Sequence[str] = (),
    *,
    language: str | Sequence[str] = (),
    images: "Sequence[ImageLike]" = (),
    merge: Literal["mean", "max"] = "mean",
    top: int = 10,
    where: str | None = None,
    exact: bool = False,
) -> list[Hit]:
    """The vectors nearest to one thing that is searched for, described by texts and images; best first.

    Args:
        index: the index.
        embedder: the model that computed it.
        texts: descriptions, such as one in German and its French translation.
        language: the BCP-47 tag of all texts, or one for each.
        images: images to find similar ones of.
        merge: the score of a vector: the mean of its cosines with all texts and images, or the highest of them.
        top, where, exact: as in `VectorIndex.search`.
    """
    if not texts and not len(images):
        raise InputError("a search needs a text or an image")
    embedder.check_takes_images()  # others have no space in which texts and images meet
    called = getattr(embedder.model, "name_or_path", "") or type(embedder.model).__name__
    index.check_model(index_identity(embedder.model, embedder.processor), called)
    parts = [embedder.encode_text(texts, language=language)] if texts else []
    parts += [embedder.encode_image(images)] if len(images) else []
    queries = np.concatenate(parts)
    if queries.shape[1] > index.info.dimension:  # the embeddings of the index were cut (`truncate_dim`)
        queries = first_dimensions(queries, index.info.dimension)
    if merge == "mean":  # a dot product is linear: one search with the mean of the queries
        return index.search(queries.mean(axis=0, keepdims=True), top, where=where, exact=exact)[0]
    best: dict[str, Hit] = {}
    for hit in (hit for hits in index.search(queries, top, where=where, exact=exact) for hit in hits):
        if hit.id not in best or best[hit.id].score < hit.score:
            best[hit.id] = hit
    return sorted(best.values(), key=lambda hit: -hit.score)[:top]


def _is_remote(address: str | Path) -> bool:
    return "://" in str(address)


def _library() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of every cell that has no vector
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError("an index needs LanceDB: pip install lancedb") from error
    return lancedb


@contextmanager
def _lance_errors(address: str | Path, failed: Sequence[BabelensError] = ()) -> Iterator[None]:
    """Raises LanceDB's errors as a SearchIndexError, those of a full disk as a SaveError, and those of the source that
    it read, `failed`, as they are."""
    try:
        yield
    except BabelensError:
        raise
    except Exception as error:
        if failed:
            raise failed[0] from error
        # A panic of LanceDB's Rust is an exception of a class that no module exports.
        if not isinstance(error, RuntimeError | ValueError | OSError) and type(error).__name__ != "RustPanic":
            raise
        if "os error" in str(error):
            raise SaveError(f"{address} could not be written: {error}") from error
        raise SearchIndexError(f"{address}: LanceDB failed: {error}") from error
