"""Corpora on disk: parquet files read in batches, rows in a cache, and a data set for the Hub."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq
from datasets import Dataset, Features
from datasets.exceptions import DatasetGenerationError
from datasets.table import embed_table_storage
from huggingface_hub import DatasetCard, DatasetCardData

from ...utils.errors import CorpusError, SaveError
from ...utils.files import new_folder
from .corpus import languages_of

_VERSION = 1  # to be raised when a change of a reader makes other rows of the same files
_IMAGES_IN_FILE = 1000
_IMAGES_IN_GROUP = 100  # number of images that the Hub's viewer reads at a time
_SPLIT = re.compile(r"\w+(\.\w+)*")  # names that `datasets` accepts


def parquet_file(file: Path | IO[bytes]) -> pq.ParquetFile:
    """Opens a parquet file for reading in batches. By default, pyarrow keeps everything that it has read."""
    return pq.ParquetFile(file, pre_buffer=False)


def cached_rows(
    rows: Callable[[], Iterable[dict[str, Any]]], features: Features, *, source: str | Path, states: Sequence[Any]
) -> Dataset:
    """Returns a dataset of rows, which stays in the cache of `datasets` while the arguments and the `states` of the
    files are the same; errors name their `source`."""
    given = {"rows": rows, "source": str(source), "states": (_VERSION, *states)}
    try:
        return Dataset.from_generator(_some_rows, features, gen_kwargs=given)
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None


def _some_rows(rows: Callable[[], Iterable[dict[str, Any]]], source: str, states: Any) -> Iterator[dict[str, Any]]:
    row = None
    for row in rows():
        yield row
    if row is None:
        raise CorpusError(f"{source}: no rows, or all of them are left out")


def save_captions(corpus: Dataset, folder: str | Path) -> Path:
    """Writes a corpus into a new folder, from which `huggingface_hub` can upload it as a data set: parquet files that
    hold the images, `data/train-00000-of-00002.parquet`, and a card. The Hub's viewer shows the images without running
    code; `load_dataset` and `load_captions` read both the folder and the repository.

    Args:
        corpus: a caption corpus, such as the one from `load_captions`. Its column `split` divides it into files;
            without one, all rows are `train`.
        folder: a folder that does not exist.

    Examples:
        >>> save_captions(load_captions("photos"), "photos-data-set")
        >>> HfApi().upload_folder(repo_id="me/photos", repo_type="dataset", folder_path="photos-data-set")
    """
    folder = Path(folder)
    if folder.exists():
        raise SaveError(f"{folder} exists: name a new folder")
    if not len(corpus):
        raise CorpusError("a corpus without rows cannot be saved")
    splits: dict[str, list[int]] = {}
    for row, name in enumerate(corpus["split"] if "split" in corpus.column_names else ["train"] * len(corpus)):
        if not _SPLIT.fullmatch(str(name)):
            raise CorpusError(f"split {name!r} of row {row}: the name of a split may only have letters, digits and _")
        splits.setdefault(name, []).append(row)
    with new_folder(folder) as unfinished:
        (unfinished / "data").mkdir()
        for split, rows in splits.items():
            starts = range(0, len(rows), _IMAGES_IN_FILE)
            for index, start in enumerate(starts):
                part = corpus.select(rows[start : start + _IMAGES_IN_FILE]).with_format("arrow")[:]
                path = unfinished / "data" / f"{split}-{index:05d}-of-{len(starts):05d}.parquet"
                pq.write_table(embed_table_storage(part), path, row_group_size=_IMAGES_IN_GROUP)
        _card(corpus, list(splits), folder.name).save(unfinished / "README.md")
    return folder


def _card(corpus: Dataset, splits: list[str], name: str) -> DatasetCard:
    languages = list(languages_of(corpus))
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in languages))
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in splits]
    metadata = DatasetCardData(
        language=codes,
        language_bcp47=languages if languages != codes else None,
        pretty_name=name,
        task_categories=["image-to-text", "text-to-image"],
        configs=[{"config_name": "default", "data_files": files}],
    )
    text = f"# {name}\n\n{len(corpus):,} images with captions in {', '.join(languages)}.\n"
    return DatasetCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}")
