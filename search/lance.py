"""An index of image embeddings, LanceDB's table `vectors`. To add or delete rows, rebuild it or use LanceDB on it."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..inference.embed import EMBEDDING, ID, EmbeddingsInfo, read_info, shard_files
from ..inference.embedder import Embedder, ImageLike, first_dimensions
from ..inference.image_index import image_identity
from ..utils.errors import BabelensError, CorpusError, InputError, SaveError, requires
from ..utils.files import new_folder
from ..utils.redaction import redact

_TABLE, _FACTS = "vectors", b"babelens"
_LENGTH_TOLERANCE = 0.01  # the length of float16 vectors with 1000 dimensions deviates from 1 by a few ten-thousandths
_ROWS_AT_ONCE = 16_384
_SPARE = 16  # additional candidates: LanceDB orders them by float16 scores
_CELLED = 10_000  # with fewer vectors, a scan is as fast as searching cells
_PROBES, _REFINE = 64, 10


@dataclass(frozen=True)
class Hit:
    """A search result: the `id` of a vector, its cosine with the query, and the values of the other columns."""

    id: str
    score: float
    metadata: dict[str, Any]


def build_index(address: str | Path, embeddings: str | Path, *, approximate: bool = False) -> "VectorIndex":
    """Builds an index of a folder that `babelens embed` wrote, in a new or empty folder or an object store. Instead of
    all vectors, `approximate` searches scan candidates from the nearest cells of an IVF-PQ index."""
    library, info, files, failed = _library(), read_info(embeddings), shard_files(embeddings), list[BabelensError]()
    if not files:
        raise CorpusError(f"{embeddings} has no shards of embeddings")
    try:
        stored = pq.read_schema(files[0])
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{files[0]}: {error}") from error
    # LanceDB's filters do not read dictionaries.
    columns = [(each.name, getattr(each.type, "value_type", each.type)) for each in stored if each.name != EMBEDDING]
    facts = {_FACTS: json.dumps({"info": redact(asdict(info))})}
    schema = pa.schema([*columns, (EMBEDDING, pa.list_(pa.float16(), info.dimension))], facts)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from _checked_rows(files, schema)
        except BabelensError as error:
            failed.append(error)
            raise

    location = nullcontext(address) if _is_remote(address) else new_folder(address)
    with location as place, _lance_errors(address, failed):
        database = library.connect(str(place))
        table = database.create_table(_TABLE, pa.RecordBatchReader.from_batches(schema, batches()), schema=schema)
        count, width = table.count_rows(), info.dimension
        if not count:
            database.drop_table(_TABLE)
            raise InputError(f"{embeddings} has no vectors to search")
        if approximate and count >= _CELLED:
            from lancedb.index import IvfPq

            cells, pieces = round(2 * count**0.5), width // 2 if width % 2 == 0 else width
            config = IvfPq(distance_type="dot", num_partitions=cells, num_sub_vectors=pieces, num_bits=4)
            table.create_index(EMBEDDING, config=config)
    return open_index(address)


def _checked_rows(files: list[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of shards, whose vectors must have the length 1, and whose ids must be unique."""
    hashes = np.empty(0, np.int64)
    for file in files:
        try:
            rows = pq.ParquetFile(file, pre_buffer=False)  # otherwise pyarrow keeps all that it has read
            kind = rows.schema_arrow.field(EMBEDDING).type
            if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
                raise CorpusError(f"{file} has no column `{EMBEDDING}` of lists of numbers, all of one length")
            for batch in rows.iter_batches(_ROWS_AT_ONCE):
                ids, column = batch[ID].to_pylist(), batch[EMBEDDING]
                if None in ids or "" in ids:
                    raise CorpusError(f"{file}: a row has no id")
                if column.null_count or column.flatten().null_count:
                    raise CorpusError(f"{file}: a row has no embedding, or one with a missing number")
                vectors = column.flatten().to_numpy().reshape(len(batch), kind.list_size)
                lengths = np.linalg.norm(vectors.astype(np.float32), axis=1)
                if (wrong := ~(abs(lengths - 1) <= _LENGTH_TOLERANCE)).any():
                    first = int(wrong.argmax())
                    raise CorpusError(f"{file}: the vector of {ids[first]} has length {lengths[first]:.3f}, not 1")
                hashes = np.concatenate([hashes, np.fromiter(map(hash, ids), np.int64, len(ids))])
                yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()
        except (OSError, pa.ArrowException, KeyError) as error:
            raise CorpusError(f"the rows of {file} cannot be used: {error}") from error
    if len(np.unique(hashes)) < len(hashes):
        raise CorpusError(f"{files[0].parent}: an id occurs twice")


def open_index(address: str | Path) -> "VectorIndex":
    """Opens the index in a folder or at an address that LanceDB takes (`s3://bucket/index`, `gs://…`, `az://…`)."""
    if not _is_remote(address) and not (Path(address) / f"{_TABLE}.lance").is_dir():
        raise InputError(f"{address} is not an index: make one with `babelens index`")
    try:
        with _lance_errors(address):
            return VectorIndex(address, _library().connect(str(address)).open_table(_TABLE))
    except (KeyError, TypeError) as error:
        raise InputError(f"{address} does not have an index of babelens, or the index is damaged: {error}") from error


class VectorIndex:
    """An index of embeddings; `info` names their model, `schema` the other columns; `table` is LanceDB's."""

    def __init__(self, address: str | Path, table: Any) -> None:
        self.address, self.table = address, table
        self.info = EmbeddingsInfo(**json.loads(table.schema.metadata[_FACTS])["info"])
        self.schema = pa.schema([field for field in table.schema if field.name != EMBEDDING])
        self.is_approximate = any(EMBEDDING in each.columns for each in table.list_indices())

    def __len__(self) -> int:
        return self.table.count_rows()

    def search(self, queries: np.ndarray, top: int = 10, *, where: str | None = None) -> list[list[Hit]]:
        """At most `top` vectors for each query, nearest first, that match the filter `where` (SQL on the metadata)."""
        queries = np.asarray(queries, dtype=np.float32)
        if queries.shape[1:] != (self.info.dimension,) or not np.isfinite(queries).all():
            raise InputError(f"queries for this index must be finite numbers [n, {self.info.dimension}]")
        with _lance_errors(self.address):
            return [self._nearest(query, top, where, self.is_approximate) for query in queries]

    def _nearest(self, query: np.ndarray, top: int, where: str | None, approximate: bool) -> list[Hit]:
        rows = len(self)
        search = self.table.search(query, vector_column_name=EMBEDDING).distance_type("dot")
        search = search.limit(max(1, min(top + _SPARE, rows)))
        if where is not None:
            search = search.where(f"({where})", prefilter=True)
        search = search.nprobes(_PROBES).refine_factor(_REFINE) if approximate else search.bypass_vector_index()
        found = search.select([*self.schema.names, EMBEDDING, "_distance"]).to_arrow()
        if approximate and len(found) < min(top, rows):
            return self._nearest(query, top, where, False)  # other cells may have vectors that match the filter
        vectors = found[EMBEDDING].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        scores = vectors.reshape(-1, self.info.dimension).astype(np.float32) @ query
        best = np.argsort(-scores, kind="stable")[:top]
        values = found.select(self.schema.names).take(best).to_pylist()
        return [Hit(row.pop(ID), float(score), row) for row, score in zip(values, scores[best], strict=True)]


def search_index(
    index: VectorIndex,
    embedder: Embedder,
    texts: Sequence[str] = (),
    *,
    language: str | Sequence[str] = (),
    images: Sequence[ImageLike] = (),
    top: int = 10,
    where: str | None = None,
) -> list[Hit]:
    """The vectors with the highest mean cosine to texts and images that describe one thing, such as a German text and
    its French translation, best first."""
    embedder.check_takes_images()  # other models have no joint space for texts and images
    fingerprint, stored = image_identity(embedder.model, embedder.processor), index.info
    if stored.fingerprint != fingerprint:
        raise InputError(f"the index has embeddings of {stored.model}, which is another model or version")
    queries = [embedder.encode_text(texts, language=language)] if texts else []
    queries += [embedder.encode_image(images)] if len(images) else []
    vectors = np.concatenate(queries)
    if vectors.shape[1] > stored.dimension:  # the embeddings in the index were truncated (`truncate_dim`)
        vectors = first_dimensions(vectors, stored.dimension)
    return index.search(vectors.mean(axis=0, keepdims=True), top, where=where)[0]


def _is_remote(address: str | Path) -> bool:
    return "://" in str(address)


def _library() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns about every empty cell
    with requires("lancedb"):
        import lancedb
    return lancedb


@contextmanager
def _lance_errors(address: str | Path, failed: Sequence[BabelensError] = ()) -> Iterator[None]:
    """Raises LanceDB's errors as an InputError, or a SaveError for a full disk; those in `failed` stay unchanged."""
    try:
        yield
    except BabelensError:
        raise
    except Exception as error:
        if failed:
            raise failed[0] from error
        # A panic in LanceDB's Rust code is an exception whose class no module exports.
        if not isinstance(error, RuntimeError | ValueError | OSError) and type(error).__name__ != "RustPanic":
            raise
        kind = SaveError if "os error" in str(error) else InputError
        raise kind(f"{address}: LanceDB failed: {str(error).partition(', /')[0]}") from error  # without its source
