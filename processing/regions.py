"""Reads precomputed region features by image: IGLUE's published files (Bugliarello et al. 2022), with 36 regions of
width 2048 (Zhou et al. 2023, section 3.2).

    *.h5        a group for each image: `features` float32 [36, 2048], `boxes` [36, 4], `obj_id`, `img_w`, ...
    *.lmdb      tensorpack's file for pre-training, such as `training_feat_all.lmdb` of Conceptual Captions: records
                under `00000000`, `00000001`, …, as msgpack, each a list [features, …, image id, caption] of thirteen
                or a dict with `features` and `img_id`
    a folder    `<image id>.npy` with features only (`_info.npy` next to it is pickled, and is not opened), or
                `<image id>.npz` with `features`, or `x`, the name that extractors of bottom-up attention use

An image is read on access, from files that each process opens for itself. Its id is looked up unchanged, then with or
without the ending of an image file: `1000092795` and `1000092795.jpg` are the same image in IGLUE's files.

A pickle can run any program, and is never opened.
"""

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.errors import InputError, MissingExtraError
from .region_arrays import check_regions

_FEATURES = "features"
_ARRAYS = (_FEATURES, "x")
_SERIAL_KEYS = b"__keys__"  # tensorpack's list of keys
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_LANGUAGE = "{language}"


def forms_of(image_id: str) -> list[str]:
    """Returns the names under which files of regions may list an image: with and without the ending of an image file,
    and the same without folders. `id/39-1.jpg` -> `id/39-1.jpg`, `id/39-1`, `39-1.jpg`, `39-1`."""
    forms: list[str] = []
    alone = image_id if ".." in image_id.split("/") else image_id.rpartition("/")[2]
    for name in dict.fromkeys((image_id, alone)):
        stem, dot, suffix = name.rpartition(".")
        known = dot + suffix.lower() in _IMAGE_SUFFIXES
        forms += [name, stem] if known else [name, *(name + ending for ending in _IMAGE_SUFFIXES)]
    return forms


class UnknownImageError(InputError, KeyError):
    """No file has region features for the requested image; a `KeyError`, so `get` returns its default."""

    __str__ = Exception.__str__  # KeyError would put the message in quotation marks


class RegionFeatures(Mapping[str, np.ndarray]):
    """Maps image ids to features float32 [R, region_size]; can be passed to other processes.

    Args:
        region_size, max_regions: as in `Rc3Config`.
        prefix: precedes the ids of all images of the file, such as `id/`.
    """

    def __init__(self, path: str | Path, *, region_size: int = 2048, max_regions: int = 36, prefix: str = "") -> None:
        self.path, self.region_size, self.max_regions, self.prefix = Path(path), region_size, max_regions, prefix
        if not self.path.exists():
            raise InputError(f"{path}: no such file or folder")
        self._opened: tuple[int, Mapping[str, Any]] | None = None
        _ = self._file  # raises errors about the file now, not on the first access

    @property
    def _file(self) -> Mapping[str, Any]:
        """The file, opened by this process: open files do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            kind: Any = _Folder
            if self.path.suffix in (".h5", ".hdf5"):
                kind = _h5
            elif self.path.suffix == ".lmdb" or (self.path / "data.mdb").is_file():
                kind = _Tensorpack
            self._opened = (os.getpid(), kind(self.path))
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": None}

    def __getitem__(self, image_id: str) -> np.ndarray:
        called = f"{self.path}, image {image_id!r}"
        if (key := self.key_of(image_id)) is None:
            raise UnknownImageError(f"{called}: there is no such image{self.hint()}")
        try:
            features = self._file[key]
            if hasattr(features, "keys"):  # an HDF5 group
                features = features[_FEATURES][()]
            if isinstance(features, bytes | str):  # in base64
                features = np.frombuffer(b64decode(features, validate=True), np.float32).reshape(-1, self.region_size)
        except InputError:
            raise
        except Exception as error:  # the libraries raise many types for broken files
            raise InputError(f"{called}: {error}") from error
        return check_regions(features, self.region_size, self.max_regions, called)

    def __contains__(self, image_id: object) -> bool:
        return isinstance(image_id, str) and self.key_of(image_id) is not None

    def __iter__(self) -> Iterator[str]:
        return (self.prefix + key for key in self._file)

    def __len__(self) -> int:
        return len(self._file)

    def key_of(self, image_id: str) -> str | None:
        """Returns the name of an image in the file, one of `forms_of`; None if there is none."""
        if not image_id.startswith(self.prefix):
            return None
        return next((form for form in forms_of(image_id.removeprefix(self.prefix)) if form in self._file), None)

    def hint(self) -> str:
        """Returns examples of image names, for errors."""
        keys = ", ".join(map(repr, islice(self, 3)))
        return f"; the names of its images look like {keys}" if keys else "; it has no images"


class SeveralRegions(Mapping[str, np.ndarray]):
    """The regions of several files as one mapping; the first file that has an image counts."""

    def __init__(self, *files: RegionFeatures) -> None:
        self.files = files

    def __getitem__(self, image_id: str) -> np.ndarray:
        having = [file for file in self.files if image_id in file]
        if not having:
            looks = "".join(f"; {file.path}{file.hint().replace('; ', ': ', 1)}" for file in self.files)
            raise UnknownImageError(f"image {image_id!r}: there is no such image{looks}")
        alone = all("/" not in (file.key_of(image_id) or "") and not file.prefix for file in having)
        if "/" in image_id and len(having) > 1 and alone:
            paths = ", ".join(str(file.path) for file in having)
            raise InputError(
                f"image {image_id!r}: {paths} have images of that name, which may differ; name the files by one path "
                f"with {_LANGUAGE} in it"
            )
        return having[0][image_id]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(image_id for file in self.files for image_id in file))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def open_regions(path: str | Path, *, region_size: int = 2048, max_regions: int = 36) -> RegionFeatures:
    """Returns the regions of a path: `.h5` or `.hdf5`, an LMDB folder or `.lmdb` file, or a folder of arrays.

    Args:
        region_size, max_regions: as in `Rc3Config`.

    Examples:
        >>> regions = open_regions("flickr30k_boxes36.h5")
        >>> processor(text="ein rotes Auto", language="de", regions=regions["1000092795"])
    """
    return RegionFeatures(path, region_size=region_size, max_regions=max_regions)


def open_joined_regions(files: Sequence[str], *, region_size: int = 2048, max_regions: int = 36) -> SeveralRegions:
    """Opens the regions of several files. A path with `{language}` in its name, such as `marvl-{language}_boxes36.h5`,
    means one file per language, whose images are named `<language>/<name>`, as in `load_marvl`: MaRVL repeats
    image names across languages."""
    sizes: dict[str, Any] = {"region_size": region_size, "max_regions": max_regions}
    opened: list[RegionFeatures] = []
    for name in files:
        path = Path(name)
        before, mark, after = path.name.partition(_LANGUAGE)
        found = sorted(path.parent.glob(f"{before}*{after}")) if mark else [path]
        if not found:
            raise InputError(f"{name}: no such file for any language")
        for file in found:
            language = file.name[len(before) : len(file.name) - len(after)]
            opened.append(RegionFeatures(file, prefix=f"{language}/" if mark else "", **sizes))
    return SeveralRegions(*opened)


# ---- Formats ----


def _h5(path: Path) -> Mapping[str, Any]:
    """Opens IGLUE's `*_boxes36.h5`, with a group for each image."""
    try:
        opened: Mapping[str, Any] = _library("h5py", path).File(path, "r")
    except OSError as error:
        raise InputError(f"{path}: {error}") from error
    return opened


class _Folder(Mapping[str, Any]):
    """A file for each image, `.npy` or `.npz`, in the folder or in folders inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise InputError(f"{path}: not a folder")

    def _file_of(self, image_id: object) -> Path | None:
        candidates = (self.path / f"{image_id}{suffix}" for suffix in (".npy", ".npz"))
        inside = self.path.resolve()
        return next((file for file in candidates if file.resolve().is_relative_to(inside) and file.is_file()), None)

    def __getitem__(self, key: str) -> Any:
        file = self._file_of(key) or self.path
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            name = next((name for name in _ARRAYS if name in loaded), None)
            if name is None:
                raise InputError(f"{file}: has {loaded.files}, none of {list(_ARRAYS)}")
            return loaded[name]

    def __contains__(self, key: object) -> bool:
        return self._file_of(key) is not None

    def __iter__(self) -> Iterator[str]:
        for file in sorted(self.path.rglob("*.np[yz]")):
            if not file.name.endswith("_info.npy"):
                yield str(file.relative_to(self.path).with_suffix(""))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Tensorpack(Mapping[str, Any]):
    """The file of tensorpack's `LMDBSerializer`.

    The first access makes the process read the ids of all records, without their features.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.database = path, _database(path)
        if self._record(_SERIAL_KEYS) is None:
            raise InputError(f"{path}: not a tensorpack file, which would have the key {_SERIAL_KEYS.decode()}")

    def _record(self, key: bytes) -> bytes | None:
        with self.database.begin() as transaction:
            return transaction.get(key)

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        """Image id -> the key of its first record."""
        found: dict[str, bytes] = {}
        with self.database.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                if bytes(key) != _SERIAL_KEYS:
                    found.setdefault(self._part(value, bytes(key), "img_id", 11), bytes(key))
        return found

    def _part(self, value: Any, key: bytes, name: str, position: int) -> Any:
        """Returns a part of a record by its name or position."""
        try:
            options = {"object_hook": _named_or_array, "raw": False, "strict_map_key": False}
            record = _library("msgpack", self.path).unpackb(value, **options)
            return record[name] if isinstance(record, dict) else record[position]
        except Exception as error:
            raise InputError(
                f"{self.path}, record {key.decode()}: {name} cannot be read ({error}); records are read as msgpack, "
                "which tensorpack writes with TENSORPACK_SERIALIZE=msgpack"
            ) from error

    def __getitem__(self, key: str) -> Any:
        stored = self._keys[key]
        return self._part(self._record(stored) or b"", stored, _FEATURES, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


# The process that opened an LMDB file, and the open file, by path. A process can open a file only once.
_OPENED: dict[Path, tuple[int, Any]] = {}


def _database(path: Path) -> Any:
    lmdb = _library("lmdb", path)
    process, database = _OPENED.get(path.resolve(), (0, None))
    if process == os.getpid():
        return database
    if database is not None:  # inherited by a fork
        database.close()
    try:
        database = lmdb.open(
            str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, meminit=False
        )
    except lmdb.Error as error:
        raise InputError(f"{path}: {error}") from error
    file = path / "data.mdb" if path.is_dir() else path
    needed = (database.info()["last_pgno"] + 1) * database.stat()["psize"]
    if file.stat().st_size < needed:  # reading beyond the end would terminate the process
        database.close()
        raise InputError(f"{file}: truncated, {file.stat().st_size} of {needed} bytes")
    _OPENED[path.resolve()] = os.getpid(), database
    return database


def _named_or_array(stored: dict[Any, Any]) -> Any:
    """Returns a record's dictionary by names; or the array or number that msgpack-numpy has written as `nd`, `type`,
    `shape` and `data`. (msgpack-numpy itself would run the pickles in arrays of objects.)"""
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
    if "nd" not in named:
        return named
    flat = np.frombuffer(named["data"], np.dtype(named["type"]))
    return flat.reshape(named["shape"]) if named["nd"] else flat[0]


def _library(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{path} needs {name}: pip install {name}") from error
