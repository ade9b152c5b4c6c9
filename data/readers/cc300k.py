"""CC300K (Zhang et al. 2022, MLA, section 4.1): 300,000 images of Conceptual Captions with UC2's translations, as
MLA's authors publish them. Their archive of annotations, beside the images that one fetches oneself, is

    annotation/uc2_6langs/jsons/ref_captions_en.json    {"00000012.jpg": ["a cat on a mat"], …}; likewise de, fr, cs,
                                                        zh and ja
    cc300k.json                                         the names of the subset's images: ["00000012.jpg", …]
    images/00000012.jpg                                 the images

The files `ref_captions_*.json` have the captions of all of Conceptual Captions; CC69L has the same form.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import datasets
from datasets import Dataset, Features, Image, Value

from ...configuration.errors import BadImageError, CorpusError
from ...configuration.identity import file_states
from ...configuration.languages import normalize_languages
from ..corpus.captions import CaptionRules, enumeration, normalize_captions
from ..corpus.corpus import CAPTIONS
from ..corpus.prepared import cache_key, prepared
from ..corpus.text_files import read_json
from .task_files import image_path, warn_of

DEFAULT_CACHE = Path(datasets.config.HF_DATASETS_CACHE) / "babelens" / "cc300k"
_VERSION = 1  # to be raised when a change of this code makes other rows of the same files
_FILE = "ref_captions_{}.json"
_FOLDERS = ("annotation/uc2_6langs/jsons", "")


def load_cc300k(
    folder: str | Path,
    languages: str | list[str] | tuple[str, ...] = ("en", "de", "fr", "cs", "zh", "ja"),
    *,
    images: str | Path | None = None,
    image_ids: str | Path | None = None,
    on_missing_image: Literal["error", "skip"] = "error",
    cache_dir: str | Path | None = None,
) -> Dataset:
    """A caption corpus with the captions of an image in each language, also for `translation_pairs`.

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`. The first call with
    the same files reads all of them and writes the rows to a cache.

    Args:
        folder: the folder of the archive above, or that of its files `ref_captions_*.json`.
        languages: languages of the captions.
        images: the folder of the images; without it there are captions alone.
        image_ids: a JSON list of the images to keep, `cc300k.json`; by default all.
        on_missing_image: what to do with an image that is not in the folder: raise an error, or leave it out with a
            warning that counts and names such images. Not all images of Conceptual Captions can still be fetched.
        cache_dir: the folder of the cache; by default `DEFAULT_CACHE`.

    Raises:
        CorpusError: for files that are missing or of another form; the message names the file and the image.
        BadTextError: for an empty or over-long caption.
        BadImageError: for an image that is not in the folder.

    Examples:
        >>> corpus = load_cc300k("cc300k", ["en", "de"], images="cc300k/images", image_ids="cc300k/cc300k.json")
    """
    tags = normalize_languages([languages] if isinstance(languages, str) else list(languages))
    files = {tag: _found(Path(folder), _FILE.format(tag)) for tag in tags}
    read = [*files.values(), *([] if image_ids is None else [Path(image_ids)])]
    if missing := [file for file in read if not file.is_file()]:
        raise CorpusError(f"there is no file {', '.join(map(str, missing))}")
    columns: dict[str, Any] = {"image": Image()} if images is not None else {}
    features = Features(columns | {"image_id": Value("string"), "captions": CAPTIONS})
    skip = on_missing_image == "skip"
    where = None if images is None else str(Path(images).absolute())
    present = _names_in(images) if images is not None and skip else None
    key = cache_key(_VERSION, tags, where, file_states(read), present and sorted(present))
    rows = partial(_rows, files, image_ids, images, present)
    return prepared(rows, features, Path(cache_dir or DEFAULT_CACHE) / key, source=folder)


def _found(folder: Path, name: str) -> Path:
    for within in _FOLDERS:
        if (folder / within / name).is_file():
            return folder / within / name
    raise CorpusError(f"{folder}: there is no {name}, here or in {_FOLDERS[0]}")


def _names_in(images: str | Path) -> set[str]:
    if not Path(images).is_dir():
        raise CorpusError(f"{images}: there is no such folder of images")
    return {file.name for file in Path(images).iterdir()}


def _rows(
    files: dict[str, Path], image_ids: str | Path | None, images: str | Path | None, present: set[str] | None
) -> Iterator[dict[str, Any]]:
    captions_of = {tag: _captions(file) for tag, file in files.items()}
    first = next(iter(captions_of))
    names = _names(Path(image_ids)) if image_ids is not None else list(captions_of[first])
    absent = []
    for name in names:
        place = f"{files[first]} {name!r}"
        if lacking := [tag for tag, captions in captions_of.items() if name not in captions]:
            raise CorpusError(f"{files[lacking[0]]}: there is no caption of {name!r}")
        if present is not None and name not in present:
            absent.append(name)
            continue
        texts = {tag: captions[name] for tag, captions in captions_of.items()}
        try:
            row: dict[str, Any] = {
                "image_id": name,
                "captions": normalize_captions(texts, CaptionRules(at_least=len(texts))),
            }
        except CorpusError as error:
            raise type(error)(f"{place}: {error}") from None
        if images is not None:
            row["image"] = {"bytes": None, "path": image_path(images, name, place)}
        yield row
    if absent and len(absent) == len(names):
        raise BadImageError(f"{images}: none of the {len(names):,} images is there, such as {enumeration(absent, 3)}")
    warn_of(f"left out images that are not in {images}", absent)


def _captions(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict) or not all(isinstance(texts, list) for texts in content.values()):
        raise CorpusError(f"{file}: expected an object that gives every image a list of captions")
    return content


def _names(file: Path) -> list[str]:
    content = read_json(file)
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise CorpusError(f"{file}: expected a list of the images' names")
    return content
