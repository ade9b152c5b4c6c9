"""Reads precomputed region features by image: IGLUE's published files (Bugliarello et al. 2022), with 36 regions of
width 2048 (Zhou et al. 2023, section 3.2). A pickle can run any program, and is never opened.

    *.h5        a group for each image: `features` float32 [36, 2048], `boxes` [36, 4], `obj_id`, `img_w`, ...
    *.lmdb      tensorpack's records `00000000`, `00000001`, … as msgpack: [features, …, image id, caption] of thirteen
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.errors import InputError, requires
from .processing_rc3 import check_regions

_SERIAL_KEYS = b"__keys__"  # tensorpack's list of keys
_IMAGE_ID, _RECORD_FEATURES = 11, 0  # positions in tensorpack's records
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_LANGUAGE = "{language}"


def forms_of(image_id: str) -> list[str]:
    """Returns the names under which files may list an image: `id/39-1.jpg` -> `id/39-1.jpg`, `id/39-1`, `39-1.jpg`,
    `39-1`."""
    forms: list[str] = []
    for name in dict.fromkeys((image_id, image_id.rpartition("/")[2])):
        stem, dot, suffix = name.rpartition(".")
        known = dot + suffix.lower() in _IMAGE_SUFFIXES
        forms += [name, stem] if known else [name, *(name + ending for ending in _IMAGE_SUFFIXES)]
    return forms


class UnknownImageError(InputError, KeyError):
    """A `KeyError`, so `get` returns its default."""

    __str__ = Exception.__str__  # KeyError would put the message in quotation marks


class RegionFeatures(Mapping[str, np.ndarray]):
    """Maps image ids to features float32 [R, region_size]; can be passed to other processes. `files` are (prefix,
    path), whose image ids start with the prefix, such as `id/`; the first file that has an image counts."""

    def __init__(self, files: Sequence[tuple[str, Path]], region_size: int, max_regions: int) -> None:
        self.files, self.region_size, self.max_regions = files, region_size, max_regions
        for _, path in files:
            _opened(path)  # raises errors about the file now, not on the first access

    def _found(self, image_id: Any) -> list[tuple[Path, str]]:
        return [
            (path, name)
            for prefix, path in self.files
            if isinstance(image_id, str) and image_id.startswith(prefix)
            for name in [form for form in forms_of(image_id.removeprefix(prefix)) if form in _opened(path)][:1]
        ]

    def __getitem__(self, image_id: str) -> np.ndarray:
        found = self._found(image_id)
        if not found:
            looks = "; ".join(f"{path} has images such as {[*islice(_opened(path), 3)]}" for _, path in self.files)
            raise UnknownImageError(f"image {image_id!r}: there is no such image; {looks}")
        if "/" in image_id and len(found) > 1:
            several = ", ".join(str(path) for path, _ in found)
            advice = f"name the files by one path with {_LANGUAGE} in it"
            raise InputError(f"image {image_id!r}: {several} have images of that name; {advice}")
        (path, name), *_ = found
        try:
            features = _opened(path)[name]
            if hasattr(features, "keys"):  # an HDF5 group
                features = features["features"][()]
            return check_regions(features, self.region_size, self.max_regions, "features")
        except Exception as error:  # the libraries raise many types for broken files
            raise InputError(f"{path}, image {image_id!r}: {error}") from error

    def __contains__(self, image_id: object) -> bool:
        return bool(self._found(image_id))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(prefix + name for prefix, path in self.files for name in _opened(path)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def open_regions(
    paths: str | Path | Sequence[str | Path], *, region_size: int = 2048, max_regions: int = 36
) -> RegionFeatures:
    """Returns the regions of paths: `.h5`, `.hdf5`, or an LMDB file or folder. Image ids may have the ending of an
    image file or not, whatever the file has. `{language}` in a name, as in `marvl-{language}_boxes36.h5`, means one
    file per language, with ids `<language>/<name>`: MaRVL repeats names across languages.

    Examples:
        >>> regions = open_regions("flickr30k_boxes36.h5")
        >>> processor(text="ein rotes Auto", language="de", regions=regions["1000092795"])
    """
    files: list[tuple[str, Path]] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        before, mark, after = path.name.partition(_LANGUAGE)
        found = sorted(path.parent.glob(f"{before}*{after}")) if mark else [path]
        if not found:
            raise InputError(f"{path}: no such file for any language")
        files += [(f"{file.name[len(before) : len(file.name) - len(after)]}/" if mark else "", file) for file in found]
    return RegionFeatures(files, region_size, max_regions)


# The files that this process has opened: a process can open an LMDB only once.
_OPENED: dict[Path, Any] = {}


def _opened(path: Path) -> Any:
    path = path.absolute()
    if path not in _OPENED:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if path.suffix in (".h5", ".hdf5"):
            try:
                _OPENED[path] = _library("h5py").File(path, "r")
            except OSError as error:
                raise InputError(f"{path}: {error}") from error
        else:
            _OPENED[path] = _Tensorpack(path)
    return _OPENED[path]


def _forget() -> None:
    """Closes the files that a forked process has inherited, and that it has to open again."""
    for file in _OPENED.values():
        if isinstance(file, _Tensorpack):
            file.database.close()
    _OPENED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Tensorpack:
    """The file of tensorpack's `LMDBSerializer`. The first access reads the ids of all records."""

    def __init__(self, path: Path) -> None:
        lmdb = _library("lmdb")
        options = {"readonly": True, "lock": False, "readahead": False, "meminit": False}
        self.path = path
        try:
            self.database = lmdb.open(str(path), subdir=path.is_dir(), **options)
        except lmdb.Error as error:
            raise InputError(f"{path}: {error}") from error
        size = (path / "data.mdb" if path.is_dir() else path).stat().st_size
        needed = (self.database.info()["last_pgno"] + 1) * self.database.stat()["psize"]
        if size < needed:  # reading beyond the end would terminate the process
            self.database.close()
            raise InputError(f"{path}: truncated, {size} of {needed} bytes")

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with self.database.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                if bytes(key) != _SERIAL_KEYS:
                    found.setdefault(self._part(value, bytes(key), _IMAGE_ID), bytes(key))
        return found

    def _part(self, value: Any, key: bytes, position: int) -> Any:
        try:
            options = {"object_hook": _array, "raw": False, "strict_map_key": False}
            return _library("msgpack").unpackb(value, **options)[position]
        except Exception as error:
            raise InputError(
                f"{self.path}, record {key.decode()}: cannot be read as msgpack, which tensorpack writes with "
                f"TENSORPACK_SERIALIZE=msgpack: {error}"
            ) from error

    def __getitem__(self, key: str) -> Any:
        stored = self._keys[key]
        with self.database.begin() as transaction:
            return self._part(transaction.get(stored), stored, _RECORD_FEATURES)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys


def _array(stored: dict[Any, Any]) -> Any:
    """Returns the array or number that msgpack-numpy has written, which itself would run the pickles in arrays of
    objects."""
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
    flat = np.frombuffer(named["data"], np.dtype(named["type"]))
    return flat.reshape(named["shape"]) if named["nd"] else flat[0]


def _library(name: str) -> Any:
    with requires(name):
        return import_module(name)
