"""Readers of published data sets, which turn the records of files into rows; errors name the file and the record."""

from pathlib import Path, PurePath
from typing import Any

from datasets import Dataset, Features, Image, Value

from ...utils.errors import CorpusError
from ..corpus.corpus import CAPTIONS, Caption, enumeration
from ..corpus.images import path_inside

TRUTH = ("false", "true")  # the answers to a yes-or-no task, in the order of their labels
_FEATURES = dict.fromkeys(("image", "left_image", "right_image"), Image()) | {"captions": CAPTIONS}
Folder = str | Path | None


def find_file(root: str | Path, *paths: str) -> Path:
    """Returns the first of these files that exists, plain or as `….gz`; the outer folders of a path may be missing."""
    for parts in (PurePath(path).parts for path in paths):
        inner = [Path(root, *parts[start:]) for start in reversed(range(len(parts)))]
        for file in (file for path in inner for file in (path, path.with_name(f"{path.name}.gz"))):
            if file.is_file():
                return file
    names = sorted(path.name for path in Path(root).iterdir()) if Path(root).is_dir() else []
    raise CorpusError(f"{root}: there is no {' or '.join(paths)}; it has {enumeration(names, 8) or 'nothing'}")


def value_of(record: dict[str, Any], key: str, place: str) -> str:
    """Returns the text or number of a record under a key, as text; refuses an empty one."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise CorpusError(f"{place}: {key!r} should be a text or a number, and is {value!r}")
    return str(value)


def image_path(folder: str | Path, name: str, place: str) -> str:
    """Returns the path of an image, which is opened on access; its name must not lead out of the folder."""
    path = path_inside(folder, name, place)
    if not path.is_file():
        raise CorpusError(f"{place}: the image {path} does not exist")
    return str(path)


def caption_row(images: Folder, name: str, captions: list[Caption], place: str) -> dict[str, Any]:
    """Returns the row of the image `name` of a folder; without a folder, it has no column `image`."""
    image = {} if images is None else {"image": image_path(images, name, place)}
    return image | {"image_id": name, "captions": captions}


def task_dataset(rows: list[dict[str, Any]], source: str | Path, **features: Any) -> Dataset:
    """Makes a dataset of rows with the same columns: images, captions, those in `features`, and texts."""
    if not rows:
        raise CorpusError(f"{source}: no rows")
    kinds = _FEATURES | features
    return Dataset.from_list(rows, features=Features({name: kinds.get(name, Value("string")) for name in rows[0]}))
