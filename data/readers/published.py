"""Published data sets by name, each read from its files as they are published. Recipes name them as a `source`, and
commands as the data that they read, with the arguments of the readers as options:

    source: wit
    options: {files: data/wit, images: data/wit-images, languages: [de, en], on_bad_image: skip}

A reader refuses what is not its layout, and says what it found.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from datasets import Dataset, IterableDataset, concatenate_datasets

from ...configuration.errors import CorpusError
from ..benchmarks.layout import contents
from ..benchmarks.training_splits import CocoTexts, Split, load_coco, load_flickr30k
from ..corpus.text_files import files_matching
from .bitext import load_bitext
from .bitext_files import TABLES, TMX, ZIP, is_bitext
from .conceptual_captions import load_cc3m, load_cc12m, load_cc300k
from .multi30k import load_multi30k
from .wit import load_wit
from .wit_splits import WitSplit

Corpus: TypeAlias = Dataset | IterableDataset
_WIKIMATRIX = "WikiMatrix."
_MULTI30K_SPLITS = {"validation": "val", "test": "test_2016_flickr"}


def _multi30k(
    *,
    folder: str,
    split: str = "train",
    languages: list[str] | None = None,
    described: list[str] | None = None,
    images: str | None = None,
) -> Dataset:
    """Multi30K: one sentence in each language (task 1), or the five descriptions of task 2 in those `described`. The
    splits `validation` and `test` are `val` and `test_2016_flickr` of its files."""
    split = _MULTI30K_SPLITS.get(split, split)
    return load_multi30k(
        folder, split, languages or ["en", "de", "fr", "cs"], described=described or (), images=images
    )


def _flickr30k(*, folder: str, split: Split = "train") -> Dataset:
    """Flickr30K with Karpathy's `dataset_flickr30k.json`."""
    return load_flickr30k(folder, split)


def _coco(*, folder: str, split: Split = "train", captions: list[CocoTexts] | None = None) -> Dataset:
    """MSCOCO with Karpathy's `dataset_coco.json`, and STAIR, COCO-CN, AI-Hub's Korean and YJ Captions."""
    return load_coco(folder, split, captions=captions)


def _wit(
    *,
    files: str,
    images: str,
    languages: list[str] | None = None,
    texts: list[str] | None = None,
    min_languages: int = 2,
    split: WitSplit | None = None,
    on_bad_row: Literal["error", "skip"] = "error",
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    streaming: bool = False,
    cache_dir: str | None = None,
) -> Corpus:
    """WIT's files `wit_v1.*.tsv.gz`, with the images of Wikipedia; a `split` is a part of these files, as in MURAL."""
    chosen: dict[str, Any] = {} if texts is None else {"texts": tuple(texts)}
    return load_wit(
        files,
        images,
        languages,
        **chosen,
        min_languages=min_languages,
        split=split,
        on_bad_row=on_bad_row,
        check_images=check_images,
        on_bad_image=on_bad_image,
        streaming=streaming,
        cache_dir=cache_dir,
    )


def _cc3m(
    *,
    folder: str,
    languages: list[str] | None = None,
    split: str = "train",
    images: str | None = None,
    image_ids: str | None = None,
    cache_dir: str | None = None,
) -> Dataset:
    """Conceptual Captions with UC2's translations."""
    chosen: dict[str, Any] = {} if languages is None else {"languages": languages}
    return load_cc3m(folder, split=split, images=images, image_ids=image_ids, cache_dir=cache_dir, **chosen)


def _cc12m(*, files: str, streaming: bool = True, check_images: bool = True, cache_dir: str | None = None) -> Corpus:
    """Conceptual 12M: `cc12m.tsv`, or the archives that img2dataset makes of it."""
    return load_cc12m(files, streaming=streaming, check_images=check_images, cache_dir=cache_dir)


def _cc300k(
    *,
    folder: str,
    languages: list[str] | None = None,
    images: str | None = None,
    image_ids: str | None = None,
    on_missing_image: Literal["error", "skip"] = "error",
    cache_dir: str | None = None,
) -> Dataset:
    """CC300K, MLA's annotations of Conceptual Captions."""
    given: dict[str, Any] = {} if languages is None else {"languages": languages}
    given |= {"images": images, "image_ids": image_ids, "on_missing_image": on_missing_image, "cache_dir": cache_dir}
    return load_cc300k(folder, **given)


def _wikimatrix(
    *,
    files: str,
    languages: list[str] | None = None,
    min_score: float | None = None,
    shards: int = 1,
    streaming: bool = True,
    cache_dir: str | None = None,
) -> Corpus:
    """WikiMatrix's files `WikiMatrix.de-en.tsv.gz`."""
    found = files_matching(files)
    if not any(file.name.startswith(_WIKIMATRIX) and file.name.endswith(TABLES) for file in found):
        raise CorpusError(f"{files}: there is no file such as {_WIKIMATRIX}de-en.tsv.gz; {_holds(files)}")
    return _bitext(files, languages, min_score, shards, streaming, cache_dir)


def _opus(
    *,
    files: str,
    languages: list[str] | None = None,
    min_score: float | None = None,
    shards: int = 1,
    streaming: bool = True,
    cache_dir: str | None = None,
) -> Corpus:
    """OPUS's files: Moses (`de-en.txt.zip`, or the texts in it), and TMX."""
    found = files_matching(files) or files_matching(f"{files}.*")
    is_table = any(file.name.endswith(TABLES) for file in found)
    if is_table or not (is_bitext(files) or any(is_bitext(str(file)) for file in found)):
        kinds = ", ".join((*ZIP, *TMX))
        raise CorpusError(
            f"{files}: there is no file of OPUS such as de-en.txt.zip or de-en.tmx.gz ({kinds}), or there are tables "
            f"beside; {_holds(files)}"
        )
    return _bitext(files, languages, min_score, shards, streaming, cache_dir)


def _bitext(
    files: str,
    languages: list[str] | None,
    min_score: float | None,
    shards: int,
    streaming: bool,
    cache_dir: str | None,
) -> Corpus:
    return load_bitext(
        files, languages=languages, min_score=min_score, shards=shards, streaming=streaming, cache_dir=cache_dir
    )


def _several(*, sources: list[dict[str, Any]]) -> Dataset:
    """Several sources, one after the other: `sources: [{source: multi30k, folder: …}, {source: coco, …}]`."""
    parts = []
    for given in sources:
        options = dict(given)
        part = load_published(options.pop("source", ""), **options)
        if not isinstance(part, Dataset):
            raise CorpusError(f"{given['source']}: a stream cannot be joined with other data; give streaming: false")
        parts.append(part)
    if not parts:
        raise CorpusError("sources is empty: name the data sets to join")
    columns = [column for column in parts[0].column_names if all(column in part.column_names for part in parts)]
    return concatenate_datasets([part.select_columns(columns) for part in parts])


def _holds(files: str) -> str:
    """What is found where files are looked for."""
    folder = Path(files) if Path(files).is_dir() else Path(files).parent
    return f"{folder} has {contents(folder)}"


# Name of a published data set -> its reader. Arguments without a default must be given.
PUBLISHED: dict[str, Callable[..., Corpus]] = {
    "multi30k": _multi30k,
    "flickr30k": _flickr30k,
    "coco": _coco,
    "wit": _wit,
    "cc3m": _cc3m,
    "cc12m": _cc12m,
    "cc300k": _cc300k,
    "wikimatrix": _wikimatrix,
    "opus": _opus,
    "several": _several,
}


def load_published(name: str, **options: Any) -> Corpus:
    """A published data set.

    Args:
        name: a key of `PUBLISHED`.
        options: arguments of its reader.

    Raises:
        CorpusError: for an unknown name, an option that the reader does not have or lacks, files that are missing or
            not in the published layout.

    Examples:
        >>> corpus = load_published("multi30k", folder="multi30k", split="val", images="flickr30k-images")
    """
    if name not in PUBLISHED:
        raise CorpusError(f"there is no published data set {name!r}; there are {', '.join(PUBLISHED)}")
    reader = PUBLISHED[name]
    try:
        inspect.signature(reader).bind(**options)
    except TypeError as error:
        raise CorpusError(
            f"{name}: {error}; its options are {', '.join(inspect.signature(reader).parameters)}"
        ) from error
    return reader(**options)
