"""Published data sets by name: the `source` and `options` of recipes, and the data that commands read."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from datasets import Dataset, IterableDataset, concatenate_datasets

from ...utils.errors import CorpusError
from .bitext import load_bitext
from .coco import load_coco, load_flickr30k, load_multi30k, load_xtd
from .conceptual_captions import load_cc3m, load_cc12m, load_cc300k
from .wit import load_wit


def _several(*, sources: list[dict[str, Any]]) -> Dataset:
    """Joins several sources: `sources: [{source: multi30k, folder: …}, {source: coco, …}]`."""
    given = [dict(each) for each in sources]
    parts = [load_published(each.pop("source", ""), **each) for each in given]
    if not parts or not all(isinstance(part, Dataset) for part in parts):
        raise CorpusError("sources: name the data sets to join, with streaming: false")
    columns = [column for column in parts[0].column_names if all(column in part.column_names for part in parts)]
    return concatenate_datasets([part.select_columns(columns) for part in parts])


# Name of a published data set -> its reader. Arguments without a default must be given.
PUBLISHED: dict[str, Callable[..., Dataset | IterableDataset]] = {
    "multi30k": load_multi30k,
    "flickr30k": load_flickr30k,
    "coco": load_coco,
    "xtd": load_xtd,
    "wit": partial(load_wit, streaming=False),
    "cc3m": load_cc3m,
    "cc12m": load_cc12m,
    "cc300k": load_cc300k,
    "wikimatrix": load_bitext,
    "opus": load_bitext,
    "several": _several,
}


def load_published(name: str, **options: Any) -> Dataset | IterableDataset:
    """Loads a published data set, a key of `PUBLISHED`, with the arguments of its reader."""
    if name not in PUBLISHED:
        raise CorpusError(f"there is no published data set {name!r}; there are {', '.join(PUBLISHED)}")
    signature = inspect.signature(PUBLISHED[name])
    try:
        signature.bind(**options)
    except TypeError as error:
        raise CorpusError(f"{name}: {error}; its options are {', '.join(signature.parameters)}") from error
    return PUBLISHED[name](**options)
