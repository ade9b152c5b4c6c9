"""How time, memory and recall of the engines of `babelens index` grow with the number of vectors.

    python benchmarks/index_growth.py measure --engine exact --sizes 10000,100000,1000000
    python benchmarks/index_growth.py measure --engine ivf-pq --sizes 100000,1000000 --kind clustered

Vectors are drawn block by block, so that none of them need to be in memory: `random` ones are uniform on the sphere,
where approximate search is hardest; `clustered` ones are a mixture of Gaussians in 64 dimensions, with a centre for
every thousand vectors, mapped linearly to all dimensions, with noise, as embeddings of real images fill few of their
dimensions. Each index is built and searched in processes of their own, and deleted afterwards. Memory is what the
process itself holds (Linux's `RssAnon`, at its highest); pages of mapped files, which the system drops when it needs
room, do not count.
"""

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from babelens.inference.embedding_shards import EmbeddingsInfo
from babelens.search import SearchSettings, VectorSource, build_index, measured_recall, open_index

BLOCK = 16_384
LATENT, SPREAD, NOISE, PER_CENTER = 64, 0.7, 0.05, 1000
QUERIES = 20
MEBIBYTE = 2**20
RESULTS = Path("index-growth.jsonl")
SCHEMA = pa.schema([("id", pa.string()), ("width", pa.int32())])
HEADINGS = (
    "| engine | vectors | number | build, processor s | build MiB | disk MiB | query ms | with filter ms | search MiB "
    "| recall@10 |"
)

app = typer.Typer(pretty_exceptions_enable=False)


def vectors(kind: str, size: int, width: int) -> VectorSource:
    """A source of `size` vectors, the same at every reading."""
    setting = np.random.default_rng(0)
    centers = setting.standard_normal((max(8, size // PER_CENTER), LATENT), dtype=np.float32)
    spread_out = setting.standard_normal((LATENT, width), dtype=np.float32) / LATENT**0.5

    def block(number: int, rows: int) -> np.ndarray:
        random = np.random.default_rng([1, number])
        if kind == "random":
            drawn = random.standard_normal((rows, width), dtype=np.float32)
        else:
            latent = SPREAD * random.standard_normal((rows, LATENT), dtype=np.float32)
            latent += centers[random.integers(len(centers), size=rows)]
            drawn = latent @ spread_out + NOISE * random.standard_normal((rows, width), dtype=np.float32)
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)

    def read() -> Iterator[tuple[pa.Table, np.ndarray]]:
        for number, start in enumerate(range(0, size, BLOCK)):
            rows = min(BLOCK, size - start)
            numbers = range(start, start + rows)
            yield (
                pa.table([[f"{each}.jpg" for each in numbers], [each % 2000 for each in numbers]], SCHEMA),
                block(number, rows),
            )

    return VectorSource(EmbeddingsInfo(kind, kind, width), SCHEMA, read, kind)


@contextmanager
def highest_memory() -> Iterator[dict[str, float]]:
    """Measures the memory of this process during the block: {"mebibytes"} above what it held before."""
    found = {"mebibytes": 0.0}
    before, done = _held(), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            found["mebibytes"] = max(found["mebibytes"], (_held() - before) / MEBIBYTE)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()
        found["mebibytes"] = max(found["mebibytes"], (_held() - before) / MEBIBYTE)


def _held() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


@app.command(hidden=True)
def build_alone(engine: str, kind: str, size: int, width: int, folder: Path) -> None:
    """Build an index in this process."""
    source, drawing = vectors(kind, size, width), [0.0]

    def read() -> Iterator[tuple[pa.Table, np.ndarray]]:
        blocks = source.read()
        while True:
            start = time.thread_time()
            block = next(blocks, None)
            drawing[0] += time.thread_time() - start
            if block is None:
                return
            yield block

    with highest_memory() as memory:
        start, used = time.perf_counter(), time.process_time()
        index = build_index(folder, replace(source, read=read), engine)
        wall, used = time.perf_counter() - start, time.process_time() - used
    facts = {"build_seconds": wall, "build_processor": used - drawing[0], "build_mebibytes": memory["mebibytes"]}
    print(json.dumps(facts | {"bytes": index.stat().bytes}))


@app.command(hidden=True)
def search_alone(
    folder: Path,
    samples: int,
    ef_search: int | None = None,
    nprobe: int | None = None,
    refine: int | None = None,
) -> None:
    """Search an index in this process."""
    settings = SearchSettings(ef_search, nprobe, refine)
    with highest_memory() as memory:
        index = open_index(folder)
        queries = index.sample(QUERIES, seed=1)
        index.search(queries[:1])  # what is read at the first use is not counted
        durations = []
        for query in queries:
            start = time.perf_counter()
            index.search(query[None], settings=settings)
            durations.append(1000 * (time.perf_counter() - start))
        start = time.perf_counter()
        index.search(queries[:1], where="width < 100")
        filtered = 1000 * (time.perf_counter() - start)
    recall = measured_recall(index, settings, samples=samples) if index.engine != "exact" else 1.0
    facts = {"ms": statistics.median(durations), "filtered_ms": filtered, "search_mebibytes": memory["mebibytes"]}
    print(json.dumps(facts | {"recall": recall}))


@app.command()
def measure(
    engine: Annotated[str, typer.Option(help="exact, hnsw or ivf-pq.")],
    sizes: Annotated[str, typer.Option(help="Numbers of vectors, separated by commas.")],
    kind: Annotated[str, typer.Option(help="random or clustered.")] = "random",
    width: Annotated[int, typer.Option(help="Number of dimensions of a vector.")] = 512,
    samples: Annotated[int, typer.Option(help="Vectors that recall@10 is measured on.")] = 50,
    ef_search: Annotated[int | None, typer.Option(help="As in `babelens index search`.")] = None,
    nprobe: Annotated[int | None, typer.Option(help="As in `babelens index search`.")] = None,
    refine: Annotated[int | None, typer.Option(help="As in `babelens index search`.")] = None,
    folder: Annotated[Path, typer.Option(help="Where indexes are written.")] = Path("index-growth"),
    results: Annotated[Path, typer.Option(help="The file that results are appended to.")] = RESULTS,
) -> None:
    """Build, search and delete an index of each size; print a row of the table for each."""
    print(f"{HEADINGS}\n|{(HEADINGS.count('|') - 1) * '---|'}")
    given = {"--ef-search": ef_search, "--nprobe": nprobe, "--refine": refine}
    settings = [str(word) for option, value in given.items() if value for word in (option, value)]
    for size in map(int, sizes.split(",")):
        place = folder / f"{engine}-{kind}-{size}"
        try:
            built = _alone("build-alone", engine, kind, size, width, place)
            searched = _alone("search-alone", place, samples, *settings)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        row = {"engine": engine, "kind": kind, "size": size, "width": width, "settings": settings} | built | searched
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(table_row(row), flush=True)


def _alone(command: str, *arguments: object) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, __file__, command, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def table_row(row: dict) -> str:
    """A row of the table in the documentation."""
    cells = [
        " ".join([row["engine"], *row["settings"]]),
        row["kind"],
        f"{row['size']:,}",
        f"{row['build_processor']:.1f}",
        f"{row['build_mebibytes']:,.0f}",
        f"{row['bytes'] / MEBIBYTE:,.0f}",
        f"{row['ms']:.1f}",
        f"{row['filtered_ms']:.1f}",
        f"{row['search_mebibytes']:,.0f}",
        f"{row['recall']:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    app()
