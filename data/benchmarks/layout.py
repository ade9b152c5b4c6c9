"""The folder of a benchmark, in the layout in which it was published."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, Image, Value

from ...utils.errors import BenchmarkError
from ..corpus.captions import enumeration
from ..corpus.corpus import CAPTIONS
from ..corpus.text_files import read_json
from ..readers.task_files import image_path, task_dataset
from .catalog import Benchmark

# COCO's images of 2014 have the name of their folder in theirs.
_COCO_IMAGE = re.compile(r"COCO_(train2014|val2014)_\d{12}\.jpg")


@dataclass(frozen=True)
class Layout:
    """The folder of a benchmark.

    Args:
        benchmark: the benchmark, which errors name.
        root: the folder.
    """

    benchmark: Benchmark
    root: Path

    def file(self, *paths: str) -> Path:
        """The first of these files that is there; each may be compressed, as `….gz`.

        Raises:
            BenchmarkError: if none is there.
        """
        for path in paths:
            for file in (self.root / path, self.root / f"{path}.gz"):
                if file.is_file():
                    return file
        raise self.error(f"there is no file {' or '.join(paths)}")

    def folder(self, path: str) -> Path:
        """A folder.

        Raises:
            BenchmarkError: if it is not there.
        """
        if not (self.root / path).is_dir():
            raise self.error(f"there is no folder {path}")
        return self.root / path

    def coco_image(self, name: str, place: str) -> str:
        """The path of an image of COCO 2014, in `train2014` or `val2014`.

        Raises:
            BenchmarkError: for another name.
            BadImageError: if there is no such image.
        """
        match = _COCO_IMAGE.fullmatch(name)
        if match is None:
            raise BenchmarkError(f"{place}: {name!r} is not the name of an image of COCO 2014")
        return image_path(self.folder(match[1]), name, place)

    def corpus(self, rows: Iterable[dict[str, Any]]) -> Dataset:
        """A caption corpus of rows with `image`, `image_id` and `captions`.

        Raises:
            CorpusError: if there are none.
        """
        features = {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS}
        return task_dataset(rows, features, self.root)

    def error(self, problem: str) -> BenchmarkError:
        """The error of a folder that is not in the published layout."""
        name = self.benchmark.name
        return BenchmarkError(
            f"{self.root} does not hold the benchmark {name} as it was published: {problem}; it has "
            f"{contents(self.root)}. `babelens evaluate benchmark --benchmark {name}` shows what it needs"
        )


def contents(folder: str | Path) -> str:
    """The names of what is in a folder, for errors."""
    if not Path(folder).is_dir():
        return "no such folder" if not Path(folder).exists() else "no folder, but a file"
    names = sorted(path.name for path in Path(folder).iterdir())
    return enumeration(names, 8) or "nothing in it"


def json_records(file: Path, key: str | None = None) -> list[dict[str, Any]]:
    """The records of a JSON file: a list of objects, or such a list in an object under a key.

    Raises:
        BenchmarkError: for a file of another form.
        CorpusError: as in `read_json`.
    """
    content = read_json(file)
    if key is not None:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
        where = "a list of objects" if key is None else f"an object with a list of objects {key!r}"
        raise BenchmarkError(f"{file}: expected {where}, as it was published")
    return content


def captions_in(texts: dict[str, list[str]]) -> list[dict[str, str]]:
    """The cell `captions` of an image with texts by language."""
    return [{"language": language, "text": text} for language, each in texts.items() for text in each]
