"""Reads the files of a benchmark from a folder, in the layout in which they were published.

No image is decoded: images are files that a corpus names, and a missing one is an error at once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...configuration.errors import BenchmarkError
from .catalog import Benchmark
from .coco import (
    read_coco,
    read_coco_cn,
    read_italian,
    read_korean,
    read_machine_translations,
    read_stair,
    read_xtd,
    read_yj,
)
from .crisscrossed import read_crisscrossed
from .flickr import read_flickr30k, read_multi30k, read_multi30k_translations, read_xflickrco
from .layout import Layout
from .tatoeba import read_tatoeba
from .wikipedia import read_iglue_wit, read_wit, read_xm3600

# Name of a benchmark -> what reads its folder: a corpus, or for its own protocol data of its own.
READERS: dict[str, Callable[[Layout, tuple[str, ...]], Any]] = {
    "coco-1k": read_coco,
    "coco-5k": read_coco,
    "coco-35l": read_machine_translations,
    "coco-cn": read_coco_cn,
    "coco-it": read_italian,
    "coco-ko": read_korean,
    "cxc": read_crisscrossed,
    "flickr30k": read_flickr30k,
    "iglue-wit": read_iglue_wit,
    "multi30k": read_multi30k,
    "multi30k-task1": read_multi30k_translations,
    "stair-1k": read_stair,
    "stair-5k": read_stair,
    "tatoeba": read_tatoeba,
    "wit": read_wit,
    "xflickrco": read_xflickrco,
    "xm3600": read_xm3600,
    "xtd": read_xtd,
    "yj": read_yj,
}


def read_benchmark(benchmark: Benchmark, root: str | Path, languages: tuple[str, ...]) -> Any:
    """What a benchmark's reader makes of its folder.

    Raises:
        BenchmarkError: for a folder that is not in the published layout.
        CorpusError: for what is wrong in a file, with its place.
    """
    if not Path(root).is_dir():
        raise BenchmarkError(f"{root}: there is no such folder; it should hold the files of {benchmark.name}")
    return READERS[benchmark.name](Layout(benchmark, Path(root)), languages)
