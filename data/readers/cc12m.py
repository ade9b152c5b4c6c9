"""Conceptual 12M (Changpinyo et al. 2021): images with English alt texts.

    cc12m.tsv        as it is published: the address of an image and its caption, between tabs, without a header
    00000.tar, …     the images, as img2dataset fetches them by the addresses of that file: of each image its bytes and
                     a JSON object with its `url` and `caption`

`img2dataset --url_list cc12m.tsv --input_format tsv --output_format webdataset --url_col url --caption_col caption`
writes the archives, once the line `url<tab>caption` stands above the file. Archives are read as a stream; every one is
a shard.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
from datasets import Dataset, Features, IterableDataset, Value

from ...configuration.errors import BadTextError, CorpusError
from ...configuration.identity import file_states
from ..corpus.captions import CaptionRules, normalize_rows
from ..corpus.corpus import CAPTIONS
from ..corpus.loading import load_captions
from ..corpus.prepared import cache_key, prepared
from ..corpus.tar_shards import IMAGES, tar_samples, tar_shards
from ..corpus.text_files import files_matching, parse_object, read_lines

DEFAULT_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc12m"
_VERSION = 1  # to be raised when a change of this code makes other rows of the same files
_HEADER = "url\tcaption"
_TEXTS = Features(image_id=Value("string"), captions=CAPTIONS)


def load_cc12m(
    files: str | Path, *, streaming: bool = True, check_images: bool = True, cache_dir: str | Path | None = None
) -> Dataset | IterableDataset:
    """A caption corpus in English.

    Columns: `image` (from archives), `image_id` (the name of the sample in its archive; of the table, the address),
    `captions`.

    Args:
        files: archives (a folder, `cc12m/*.tar` or `cc12m/{00000..01242}.tar`, also URLs), or `cc12m.tsv`, which has
            captions without images.
        streaming: whether to return an `IterableDataset`. Archives are streams only; the captions of the table can be
            written to a cache.
        check_images: as in `load_captions`.
        cache_dir: the folder of the cache; by default `DEFAULT_CACHE`.

    Raises:
        CorpusError: for files of another form; the message names the file and what was found in it.
    """
    source = str(files)
    if not source.endswith(".tsv"):
        return _archives(source, streaming, check_images)
    tables = files_matching(source)
    if not tables:
        raise CorpusError(f"{source}: there is no such file")
    for table in tables:
        next(_lines([str(table)]))
    names = [str(table) for table in tables]
    if streaming:
        return IterableDataset.from_generator(_texts, gen_kwargs={"tables": names}, features=_TEXTS)
    folder = Path(cache_dir or DEFAULT_CACHE) / cache_key(_VERSION, file_states(tables))
    return prepared(partial(_texts, names), _TEXTS, folder, source=source)


def _archives(source: str, streaming: bool, check_images: bool) -> IterableDataset:
    try:
        shards = tar_shards(source)
    except FileNotFoundError:
        shards = []
    if not shards:
        raise CorpusError(f"{source}: there is no archive, such as 00000.tar, nor cc12m.tsv")
    name, fields = next(tar_samples(shards[0]), ("", {}))
    try:
        record = parse_object(fields.get("json", b"{}").decode())
    except (CorpusError, UnicodeDecodeError):
        record = {}
    if not {"url", "caption"} <= record.keys() or not {*IMAGES} & fields.keys():
        found = [f".{ending}" for ending in fields] + [f"the keys {', '.join(record)}"] * bool(record)
        raise CorpusError(
            f"{shards[0]} {name}: expected an image and a .json with its url and caption, as img2dataset writes them, "
            f"and found {' and '.join(found) or 'nothing'}"
        )
    if not streaming:
        raise CorpusError(f"{source}: archives are read as a stream: leave streaming out")
    loaded = load_captions(source, language="en", streaming=True, check_images=check_images)
    return cast(IterableDataset, loaded)


def _texts(tables: list[str]) -> Iterator[dict[str, Any]]:
    rules = CaptionRules(language="en")
    for place, url, caption in _lines(tables):
        [captions] = normalize_rows([caption], rules, [place].__getitem__)
        yield {"image_id": url, "captions": captions}


def _lines(tables: list[str]) -> Iterator[tuple[str, str, str]]:
    """(place, address, caption) of the lines."""
    for table in tables:
        for line, text in read_lines(Path(table)):
            place = f"{table} line {line}"
            if line == 1 and text == _HEADER:
                continue
            url, tab, caption = text.partition("\t")
            if not tab or "://" not in url:
                raise CorpusError(f"{place}: expected an address and a caption between tabs, and found {text!r:.60}")
            if not caption.strip():
                raise BadTextError(f"{place}: the caption is empty")
            yield place, url, caption.strip()
