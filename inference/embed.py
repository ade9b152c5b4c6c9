"""Embeddings of any number of images or texts, from input shards (a tar file, a parquet file, or some thousand lines
or files of a folder) to parquet shards. `ShardEmbedder` turns each into one file of the output folder, which appears
whole or not at all; a repeated run embeds the shards that are missing or whose input has changed.

`embeddings.json` in the folder names the model and the width; each `shard-000000.parquet` has the columns `id` (text,
unique), `embedding` (float16 vectors of length 1) and metadata. `babelens.search` makes an index of it."""

import dataclasses
import hashlib
import json
import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from transformers import BatchFeature

from ..data.corpus.corpus import enumeration, image_id_of
from ..data.corpus.files import IMAGES, files_named, numbered_lines, opened, parse_json, read_json_lines, tar_samples
from ..data.corpus.images import path_inside, read_image, skipped_line, walk_images
from ..utils.errors import CorpusError, InputError, LanguageTagError, SaveError, requires
from ..utils.files import atomic_file
from ..utils.identity import file_state, model_identity
from ..utils.languages import normalize_language
from ..utils.redaction import redact
from .embedder import Embedder, autocasting, prefetch, progress_bar
from .image_index import image_identity
from .texts import default_language, sample_languages

logger = logging.getLogger(__name__)

What = Literal["images", "texts"]
INFO = "embeddings.json"
ID, EMBEDDING, LANGUAGE = "id", "embedding", "language"
_COUNTS = b"babelens.counts"  # in the metadata of an output shard
_TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_TEXT_BATCHES = 16  # encoded together, so texts of similar length can share a batch
_ROW_GROUP_ROWS = 8192  # small row groups are read slowly
_IDS = ("image_id", "id")
_KINDS = {"images": ("tar", "parquet", "jsonl"), "texts": ("parquet", "jsonl", "txt")}


class Record(NamedTuple):
    """An image or a text: its id, its name in errors, the image as a cell {bytes, path} of a `datasets.Image` column,
    other values by name (of a text, `text` and `language`), and why it cannot be used, if reading it showed that."""

    id: str
    place: str
    image: dict[str, Any] | None
    metadata: dict[str, Any]
    defect: str | None = None


@dataclass(frozen=True)
class InputShard:
    """A piece of a source: a tar or parquet file at an `address`, or `records`."""

    index: int
    address: str
    records: tuple[Record, ...] = ()

    @property
    def state(self) -> str:
        """A digest of its content; files count by their names, sizes and times of modification."""
        files = [each.image["path"] for each in self.records if each.image] if self.records else [self.address]
        states, records = [*map(file_state, files)], [(each.id, each.metadata) for each in self.records]
        content = [os.path.basename(self.address), states, records]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()

    def read(self, names: list[str], what: What) -> Iterator[Record]:
        of_file = _of_tar if self.address.endswith(".tar") else _of_parquet
        records = self.records or of_file(self.address, names, what)
        seen: set[str] = set()
        for record in records:
            if record.id in seen:
                raise CorpusError(f"{record.place}: the id {record.id!r} is given twice in this shard")
            seen.add(record.id)
            yield record


def input_shards(job: "EmbeddingJob", skipped: dict[str, str]) -> Iterator[InputShard]:
    """The shards of a source, in order: a folder, a file, a pattern such as `train-{00000..00999}.tar`, or an address
    that fsspec opens. A folder with tar files is read as tar shards: img2dataset, for example, writes parquet files of
    metadata next to them. `skipped` receives the files of a folder that cannot be read."""
    source, what, is_folder = job.source, job.what, Path(job.source).is_dir()
    found = {kind: files for kind in _KINDS[what] if (files := files_named(source, f".{kind}"))}
    kind = next(iter(found), "")
    if kind in ("tar", "parquet"):
        return (InputShard(index, file) for index, file in enumerate(found[kind]))
    if what == "images" and is_folder:  # which may have a metadata.jsonl
        names = (name for name, _ in walk_images(Path(source), skipped, utf8_names=True))
        paths = ((Path(name).as_posix(), str(Path(source, name))) for name in names)
        records: Iterator[Record] = (Record(name, path, {"bytes": None, "path": path}, {}) for name, path in paths)
    elif found and not is_folder:
        records = chain.from_iterable(_of_lines(Path(file), what) for file in found[kind])
    else:
        known = ", ".join(f".{each}" for each in _KINDS[what]) + (" or a folder" if what == "images" else "")
        missing = "" if "://" in source or Path(source).exists() else ", and there is no such file or folder"
        raise CorpusError(f"{source}: {what} are read from {known}{missing}")
    pieces = iter(lambda: tuple(islice(records, job.shard_size)), ())
    return (InputShard(index, source, piece) for index, piece in enumerate(pieces))


def _of_lines(file: Path, what: What) -> Iterator[Record]:
    for number, line in numbered_lines(file):
        place, name = f"{file} line {number}", f"{file.stem}:{number}"
        if file.suffix == ".txt":
            yield Record(name, place, None, {"text": line})
        elif line.strip():
            values, image = parse_json(line, f"{place}: ", dict), None
            if what == "images":
                named = values.get("file_name")
                if not isinstance(named, str) or not named.strip():
                    raise CorpusError(f"{place}: no file_name")
                name, image = named, {"bytes": None, "path": str(path_inside(file.parent, named, place))}
            yield Record(_id_of(values, place, name), place, image, values)


def _id_of(values: dict[str, Any], place: str, default: str) -> str:
    given = next((values[name] for name in _IDS if name in values), None)
    return default if given is None else image_id_of(given, place)


def _of_tar(address: str, names: list[str], what: What) -> Iterator[Record]:
    for name, fields in tar_samples(address):
        place, metadata, defect = f"{address} {name}", {}, None
        encoded = next((fields[ending] for ending in IMAGES if ending in fields), None)
        try:
            if "txt" in names and "txt" in fields:
                metadata["txt"] = fields["txt"].decode("utf-8")
            if names and "json" in fields:
                metadata |= parse_json(fields["json"].decode("utf-8"), expected=dict)
        except (UnicodeDecodeError, CorpusError) as error:
            defect = f"{place}: {error}"
        yield Record(name, place, _cell(encoded, place), metadata, defect)


def _of_parquet(address: str, names: list[str], what: What) -> Iterator[Record]:
    columns = [*_IDS, *(["image"] if what == "images" else ["text", LANGUAGE]), *names]
    with _parquet(address) as file:
        batches = file.iter_batches(256, columns=[*dict.fromkeys(columns)])
        for row, values in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches)):
            place = f"{address} row {row}"
            name = _id_of(values, place, f"{Path(address).stem}:{row}")
            yield Record(name, place, _cell(values.get("image"), place), values)


@contextmanager
def _parquet(address: str) -> Iterator[pq.ParquetFile]:
    try:
        with opened(address) as file:
            yield pq.ParquetFile(file, pre_buffer=False)  # otherwise pyarrow keeps all that it has read
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{address}: {error}") from error


def _cell(image: Any, place: str) -> dict[str, Any] | None:
    """The cell {bytes, path} of an image, given as its bytes, or as `datasets` stores images; None without one."""
    if isinstance(image, bytes):
        return {"bytes": image, "path": None}
    if image is not None and not (isinstance(image, dict) and {"bytes", "path"} & {*image}):
        raise CorpusError(f"{place}: a column `image` must hold the bytes of image files, or {{bytes, path}}")
    cell = {name: (image or {}).get(name) for name in ("bytes", "path")}
    return cell if any(value is not None for value in cell.values()) else None


@dataclass(frozen=True)
class EmbeddingJob:
    """An embedding job. Images that cannot be read, or have metadata of another type, are skipped and counted."""

    source: str  # as `input_shards` takes it
    output: Path
    what: What = "images"
    # The metadata to keep (`parse_columns`); texts always have `text` and `language`.
    columns: dict[str, str | None] = field(default_factory=dict)
    precision: str = "float32"  # or `bfloat16`, `float16`
    shard_size: int = 10_000  # images of a folder, or lines of a file, in a shard; tar and parquet files are not cut
    language: str | None = None  # of texts that come without one

    def metadata_schema(self) -> pa.Schema:
        """The columns of metadata: with the given types, or else the types of a parquet source, or else text."""
        skipped: dict[str, str] = {}
        first = next(input_shards(self, skipped), None)
        if first is None:
            why = f" that can be read. {skipped_line(skipped, 0)}" if skipped else " in this source"
            raise CorpusError(f"{self.source}: no {self.what}{why}")
        columns = (dict.fromkeys(("text", LANGUAGE)) if self.what == "texts" else {}) | self.columns
        own: dict[str, pa.DataType] = {}
        if not first.records and not first.address.endswith(".tar"):
            with _parquet(first.address) as file:
                own = {each.name: each.type for each in file.schema_arrow}
            needed = [*columns, *(["image"] if self.what == "images" else [])]
            if missing := [name for name in needed if name not in own and name != LANGUAGE]:
                raise CorpusError(f"{first.address}: no column {', '.join(missing)}; there are {', '.join(own)}")
        return pa.schema(
            [(name, _TYPES[kind] if kind else own.get(name, pa.string())) for name, kind in columns.items()]
        )


def parse_columns(columns: Iterable[str]) -> dict[str, str | None]:
    """The names and types of columns such as `["url", "width:int"]`; a column without a type has None."""
    parsed: dict[str, str | None] = {}
    for column in columns:
        name, _, kind = column.partition(":")
        if not name or name in (ID, EMBEDDING) or name in parsed:
            raise InputError(f"{column!r}: give every column once, and not {ID} or {EMBEDDING}, which are always kept")
        if kind and kind not in _TYPES:
            raise InputError(f"{column!r}: unknown type {kind!r}; there are {', '.join(_TYPES)}")
        parsed[name] = kind or None
    return parsed


@dataclass
class Counts:
    embedded: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    missing: Counter[str] = field(default_factory=Counter)  # column -> embedded records without a value in it

    @property
    def read(self) -> int:
        return self.embedded + self.skipped.total()


class ShardEmbedder:
    """Embeds input shards into the output folder of a job; also as an actor of Ray's `Dataset.map_batches`, which
    gets the folder or repository of the model, with the arguments of `Embedder.from_pretrained`."""

    def __init__(self, embedder: Embedder | str, job: EmbeddingJob, metadata: pa.Schema, **loading: Any) -> None:
        self.embedder = Embedder.from_pretrained(embedder, **loading) if isinstance(embedder, str) else embedder
        self.job, self.metadata = job, metadata

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Embeds pickled shards, which are a batch of Ray Data; returns why some cannot be read."""
        if not (self.job.output / INFO).is_file():
            raise SaveError(f"{self.job.output} is missing on this machine: all need the same file system")
        return {"error": [self.embed(pickle.loads(shard)) for shard in batch["shard"]]}

    @cached_property
    def width(self) -> int:
        if self.job.what == "images":
            return self.embedder.encode_image(Image.new("RGB", (32, 32))).shape[1]
        return self.embedder.encode_text("a", language=sample_languages(self.embedder.processor, 1)).shape[1]

    def begin(self, model: str) -> None:
        """Writes `embeddings.json`, or checks that the folder was begun with this model and these settings."""
        folder, of_images = self.job.output, self.job.what == "images"
        settings = asdict(self.job) | {"columns": {each.name: str(each.type) for each in self.metadata}}
        settings |= {"output": None, "draft": self.embedder.draft if of_images else None}
        identity = (image_identity if of_images else model_identity)(self.embedder.model, self.embedder.processor)
        info = redact(asdict(EmbeddingsInfo(model, identity, self.width, settings)))
        if not shard_files(folder):
            with atomic_file(folder / INFO) as path:
                path.write_text(json.dumps(info, indent=2), encoding="utf-8")
            return
        stored = read_info(folder)
        if stored.fingerprint != identity:
            raise InputError(f"{folder} holds embeddings of another model, {stored.model}: choose another folder")
        there, here = redact(stored.settings), info["settings"]
        if changed := {name: there.get(name) for name in here if there.get(name) != here[name]}:
            raise InputError(f"{folder} was begun with other settings, {changed}: choose another folder")

    def embed(self, shard: InputShard) -> str:
        """Writes the output of a shard; returns why the shard cannot be read, or an empty text."""
        file, state = shard_file(self.job.output, shard.index), shard.state  # before it is read, and may change
        counts, skipped = Counts(), list[dict[str, str]]()
        columns = pa.schema([(ID, pa.string()), *self.metadata])
        schema = columns.insert(1, pa.field(EMBEDDING, pa.list_(pa.float16(), self.width)))
        waiting = schema.empty_table()
        of_images = self.job.what == "images"
        size = self.embedder.batch_size * (1 if of_images else _TEXT_BATCHES)
        prepare = self._prepared_images if of_images else self._prepared_texts
        records = shard.read(self.metadata.names, self.job.what)
        jobs = (partial(prepare, some) for some in iter(lambda: list(islice(records, size)), []))
        try:
            with (
                atomic_file(file) as unfinished,
                # Few embeddings have equal values: a dictionary of them would be larger than they are.
                pq.ParquetWriter(unfinished, schema, use_dictionary=columns.names) as writer,
                closing(prefetch(jobs, in_threads=of_images)) as batches,
                autocasting(self.embedder.model.device, self.job.precision),
            ):
                for rows, left_out, encode in batches:
                    skipped += left_out
                    counts.embedded += len(rows)
                    counts.missing.update(name for row in rows for name, value in row.items() if value is None)
                    if rows:
                        flat = pa.array(encode().astype(np.float16).reshape(-1))
                        vectors = pa.FixedSizeListArray.from_arrays(flat, self.width)
                        table = pa.Table.from_pylist(rows, columns).add_column(1, EMBEDDING, vectors)
                        waiting = pa.concat_tables([waiting, table])
                    if len(waiting) >= _ROW_GROUP_ROWS:
                        writer.write_table(waiting)
                        waiting = schema.empty_table()
                writer.write_table(waiting)
                counts.skipped.update(each["kind"] for each in skipped)
                facts = json.dumps({"counts": vars(counts), "state": state}, sort_keys=True)
                writer.add_key_value_metadata({_COUNTS: facts.encode()})
        except CorpusError as error:
            return str(error)
        listed = file.with_name(f"skipped-{file.stem.removeprefix('shard-')}.jsonl")
        listed.unlink(missing_ok=True)  # of an earlier attempt
        if skipped:
            with atomic_file(listed) as path:
                lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in skipped)
                path.write_text("".join(lines), encoding="utf-8")
        return ""

    def _prepared_images(self, records: list[Record]) -> Any:
        """The rows of records that can be embedded, the skipped records, and the function that encodes."""
        rows, places, skipped, images = [], [], [], []
        for record in records:
            kind = "no image" if record.image is None else "unusable metadata"
            try:
                row = self._row(record)
                kind = "unreadable image" if record.image else kind
                image = read_image(record.image, record.place, draft=self.embedder.draft)
            except CorpusError as error:
                skipped.append({"id": record.id, "kind": kind, "reason": str(error)})
                continue
            rows.append(row)
            places.append(record.place)
            # One at a time: decoded photographs take a hundred times the memory of the model's inputs.
            images.append(self.embedder.processor(images=[image], return_tensors="pt"))
        inputs: dict[str, Any] = {}
        for name in images[0] if images else ():
            values = [image[name] for image in images]  # sentence-transformers prepares lists of images itself
            inputs[name] = torch.cat(values) if isinstance(values[0], torch.Tensor) else [*chain(*values)]
        return rows, skipped, partial(self.embedder.encode_prepared, BatchFeature(inputs), places)

    def _prepared_texts(self, records: list[Record]) -> Any:
        for record in records:
            text = record.metadata.get("text")
            if not isinstance(text, str) or not text or text.isspace():
                raise CorpusError(f"{record.place}: no text")
            language = record.metadata.get(LANGUAGE) or self.job.language
            try:
                record.metadata[LANGUAGE] = normalize_language(language or default_language(self.embedder.processor))
            except (InputError, LanguageTagError) as error:
                raise CorpusError(f"{record.place}: {error}") from error
        rows = list(map(self._row, records))
        texts, languages = [row["text"] for row in rows], [row[LANGUAGE] for row in rows]
        return rows, [], partial(self.embedder.encode_text, texts, language=languages, show_progress=False)

    def _row(self, record: Record) -> dict[str, Any]:
        """The id and the metadata of a record; a column of text holds other values as JSON."""
        if record.defect is not None:
            raise CorpusError(record.defect)
        row: dict[str, Any] = {ID: record.id}
        for column in self.metadata:
            value = record.metadata.get(column.name)
            try:
                if column.type == pa.string() and value is not None and not isinstance(value, str):
                    value = json.dumps(value, ensure_ascii=False)
                pa.scalar(value, column.type)
            except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
                raise CorpusError(f"{record.place}: {column.name} is not of type {column.type}: {error}") from error
            row[column.name] = value
        return row


def embed_source(embedder: Embedder, job: EmbeddingJob, *, model: str) -> Counts:
    """Embeds all shards of a source that the output folder lacks, in this process, and returns the counts of all
    shards in the folder; `model` is the folder or repository of the model, for `embeddings.json`."""
    worker = ShardEmbedder(embedder, job, job.metadata_schema())
    return _embed_missing(worker, model, lambda shards: map(worker.embed, shards))


def embed_on_ray(model: str, job: EmbeddingJob, *, address: str | None = None, **loading: Any) -> Counts:
    """As `embed_source`, with an actor for each GPU of a Ray cluster, or for each processor core without GPUs. Model,
    source and output must be the same on all machines; `loading` is as in `Embedder.from_pretrained`."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with requires("'ray[data]'"):
        import ray
        import ray.data
    source = job.source if "://" in job.source else str(Path(job.source).absolute())
    job = dataclasses.replace(job, source=source, output=job.output.resolve())
    metadata = job.metadata_schema()

    def embed(shards: Iterator[InputShard]) -> Iterator[str]:
        items = [{"shard": pickle.dumps(shard)} for shard in shards]
        if not items:
            return
        resources = ray.cluster_resources()
        has_gpus = resources.get("GPU", 0) >= 1
        actors = max(1, min(int(resources["GPU" if has_gpus else "CPU"]), len(items)))
        results = ray.data.from_items(items, override_num_blocks=min(len(items), 10_000)).map_batches(
            ShardEmbedder,
            fn_constructor_args=(model, job, metadata),
            fn_constructor_kwargs=loading,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=actors),
            num_cpus=1,
            num_gpus=int(has_gpus),
        )
        yield from (row["error"] for row in results.iter_rows())

    worker = ShardEmbedder(model, job, metadata, **loading | {"device": "cpu"})
    connected = ray.is_initialized()
    try:
        if not connected:
            ray.init(address=address or "local", logging_level="warning", log_to_driver=False)
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars, context.raise_original_map_exception = False, True
        return _embed_missing(worker, model, embed)
    except ConnectionError as error:
        raise CorpusError(f"no Ray cluster at {address}: {error}") from error
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    finally:
        if not connected:
            ray.shutdown()


def _embed_missing(
    worker: ShardEmbedder, model: str, embed: Callable[[Iterator[InputShard]], Iterator[str]]
) -> Counts:
    """Embeds shards whose output is missing or outdated, adds up all counts, and reports shards not read."""
    job, number, skipped = worker.job, 0, dict[str, str]()
    worker.begin(model)

    def missing() -> Iterator[InputShard]:
        nonlocal number
        for shard in input_shards(job, skipped):
            number += 1
            file = shard_file(job.output, shard.index)
            if file.exists():
                if _facts_of(file)[1] == shard.state:
                    continue
                logger.warning("%s has another input than before: embedding it again", file)
                file.unlink()
            yield shard

    failed = []
    with progress_bar(0, "Embedding shards") as bar:
        for error in embed(missing()):
            failed += [error] if error else []
            bar.update(1)
    files, sums = shard_files(job.output), Counts()
    for counts, _ in map(_facts_of, files):
        sums = Counts(**{name: value + getattr(counts, name) for name, value in vars(sums).items()})
    if failed:
        told = f"{len(failed)} of {len(failed) + len(files)} shards could not be read; the others are complete. "
        raise CorpusError(told + enumeration(failed, shown=3))
    if sums.skipped and not sums.embedded:
        lists = sorted(job.output.glob("skipped-*.jsonl"))
        reasons = (record["reason"] for file in lists for _, record in read_json_lines(file))
        raise CorpusError(f"none of {sums.read:,} images can be read. {enumeration([*islice(reasons, 3)])}")
    if files[number:]:
        raise InputError(f"{job.output} has shards of files that {job.source} no longer has: choose another folder")
    if skipped:
        logger.warning("%s", skipped_line(skipped, sums.read))
    return sums


def _facts_of(file: Path) -> tuple[Counts, str]:
    """The counts in an output shard, and the state of its input."""
    try:
        stored = json.loads((pq.read_metadata(file).metadata or {})[_COUNTS])
        counts = stored["counts"]
        skipped, missing = (Counter(counts[name]) for name in ("skipped", "missing"))
        return Counts(counts["embedded"], skipped, missing), stored["state"]
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise CorpusError(f"{file} is damaged: delete it, and run again: {error}") from error


# ---- The folder of embeddings ----


@dataclass(frozen=True)
class EmbeddingsInfo:
    """The content of `embeddings.json`: the folder or repository of the model, its identity (`image_identity` or
    `model_identity`), the width of the embeddings, and other settings that the shards depend on."""

    model: str
    fingerprint: str
    dimension: int
    settings: dict[str, Any] = field(default_factory=dict)


def read_info(folder: str | Path) -> EmbeddingsInfo:
    try:
        return EmbeddingsInfo(**json.loads(Path(folder, INFO).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CorpusError(f"{folder} holds no embeddings of `babelens embed`: {error}") from error


def shard_file(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}.parquet"


def shard_files(folder: str | Path) -> list[Path]:
    # A millionth shard has a longer name than the others.
    return sorted(Path(folder).glob("shard-*.parquet"), key=lambda path: (len(path.name), path.name))
