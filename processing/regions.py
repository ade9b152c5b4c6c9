"""Reads region features that were computed before, by image: IGLUE's published files (Bugliarello et al. 2022) and the
files that its code makes of them. RC3 reads 36 regions of width 2048 (Zhou et al. 2023, section 3.2).

    *.h5             a group for each image: `features` float32 [36, 2048], `boxes` [36, 4], `obj_id`, `img_w`, ...
    *.lmdb (folder)  the same as a pickled dict for each image, features as an array or in base64; `keys` lists the
                     images
    *.lmdb (file)    tensorpack's, for pre-training: a record for each image in order (`TensorpackRegions`)
    a folder         `<image id>.npy` with features alone (`_info.npy` beside it is pickled, and is not opened), or
                     `<image id>.npz` with `features`, or `x`, the name that extractors of bottom-up attention use

An image is read when it is asked for, from files that each process opens itself. Boxes, classes and attributes are not
read, because RC3 has no input for them.

IGLUE's files name the same image differently: `1000092795` in `flickr30k_boxes36.h5`, `1000092795.jpg` in
`xflickrco-test_boxes36.h5`. An image_id is looked up in either form (`forms_of`), as it stands first.

A pickle can run any program. Those in LMDB files are read by an unpickler that knows numpy's arrays and scalars, and
refuses every other name.
"""

import os
import pickle
from abc import abstractmethod
from base64 import b64decode
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..utils.errors import MissingExtraError, RegionError, UnknownImageError
from .region_arrays import check_regions

_FEATURES = "features"
_KEYS = "keys"
_ARRAYS = (_FEATURES, "x")
_SERIAL_KEYS = "__keys__"  # of tensorpack's LMDB files
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_SHOWN_KEYS = 3  # in an error
# Open LMDB files by process and path.
_DATABASES: WeakValueDictionary[tuple[int, Path], Any] = WeakValueDictionary()


def forms_of(image_id: str) -> list[str]:
    """The names under which files of regions may have an image: with and without the ending of an image file, and the
    same without folders. `id/39-1.jpg` -> `id/39-1.jpg`, `id/39-1`, `39-1.jpg`, `39-1`."""
    forms: list[str] = []
    alone = image_id if ".." in image_id.split("/") else image_id.rpartition("/")[2]
    for name in dict.fromkeys((image_id, alone)):
        stem, dot, suffix = name.rpartition(".")
        known = dot + suffix.lower() in _IMAGE_SUFFIXES
        forms += [name, stem] if known else [name, *(name + ending for ending in _IMAGE_SUFFIXES)]
    return forms


class RegionFeatures(Mapping[str, np.ndarray]):
    """Maps image ids to features float32 [R, region_size]; can be passed to other processes.

    Args:
        path: the file or folder.
        region_size, max_regions: as in `Rc3Config`.

    Raises:
        RegionError: if nothing is at the path, or it cannot be read; later, if the features of an image do not fit the
            model.
        UnknownImageError: later, if an image that is asked for is missing; `get` returns its default instead.
        MissingExtraError: if the library for the format is not installed.
    """

    def __init__(self, path: str | Path, *, region_size: int = 2048, max_regions: int = 36) -> None:
        self.path, self.region_size, self.max_regions = Path(path), region_size, max_regions
        if not self.path.exists():
            raise RegionError(f"{path}: no such file or folder")
        self._opened: tuple[int, Any] | None = None
        _ = self._file  # refuses a wrong file now, and not when an image is asked for

    def __getitem__(self, image_id: str) -> np.ndarray:
        called = f"{self.path}, image {image_id!r}"
        if (key := self.key_of(image_id)) is None:
            raise UnknownImageError(f"{called}: there is no such image{self.hint()}")
        try:
            features = self._read(key)
        except RegionError:
            raise
        except Exception as error:  # the libraries raise many types for broken files
            raise RegionError(f"{called}: {error}") from error
        return check_regions(features, self.region_size, self.max_regions, called)

    def __contains__(self, image_id: object) -> bool:
        return isinstance(image_id, str) and self.key_of(image_id) is not None

    def key_of(self, image_id: str) -> str | None:
        """The name under which the file has an image, one of `forms_of`; None if it has none."""
        return next((form for form in forms_of(image_id) if self._has(form)), None)

    def hint(self) -> str:
        """What the names of images look like, for errors."""
        try:
            keys = [repr(key) for key in islice(self, _SHOWN_KEYS)]
        except RegionError:  # a file without a list of its images
            return ""
        return f"; the names of its images look like {', '.join(keys)}" if keys else "; it has no images"

    @property
    def _file(self) -> Any:
        """The file as this process opened it: open files do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), self._open())
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": None}

    @abstractmethod
    def _open(self) -> Any:
        """Opens the file, after checking that it has the format."""

    @abstractmethod
    def _has(self, key: str) -> bool:
        """Whether the file has an image under exactly this name."""

    @abstractmethod
    def _read(self, key: str) -> Any:
        """Returns the features of an image that exists."""


class H5Regions(RegionFeatures):
    """Reads IGLUE's `*_boxes36.h5`. It needs h5py."""

    def _open(self) -> Any:
        h5py = _library("h5py", self.path)
        try:
            return h5py.File(self.path, "r")
        except OSError as error:
            raise RegionError(f"{self.path}: {error}") from error

    def _read(self, key: str) -> np.ndarray:
        return self._file[key][_FEATURES][()]

    def _has(self, key: str) -> bool:
        return key in self._file

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)


class LmdbRegions(RegionFeatures):
    """Reads the files of IGLUE's `h5_to_lmdb.py` and `npy_to_lmdb.py`. It needs lmdb and msgpack."""

    def _open(self) -> Any:
        """Opens the file. A process can open an LMDB file only once: readers share it, and a forked process closes
        what it inherited."""
        lmdb = _library("lmdb", self.path)
        here = self.path.resolve()
        for (process, path), database in list(_DATABASES.items()):
            if path == here and process == os.getpid():
                return database
            if path == here:
                database.close()
        _DATABASES[os.getpid(), here] = database = self._open_first(lmdb)
        return database

    def _open_first(self, lmdb: Any) -> Any:
        try:
            database = lmdb.open(
                str(self.path), subdir=self.path.is_dir(), readonly=True, lock=False, readahead=False, meminit=False
            )
        except lmdb.Error as error:
            raise RegionError(f"{self.path}: {error}") from error
        file = self.path / "data.mdb" if self.path.is_dir() else self.path
        needed = (database.info()["last_pgno"] + 1) * database.stat()["psize"]
        if file.stat().st_size < needed:  # reading beyond the end would terminate the process
            database.close()
            raise RegionError(f"{file}: truncated, {file.stat().st_size} of {needed} bytes")
        return database

    def _get(self, key: str) -> bytes | None:
        with self._file.begin() as transaction:
            return transaction.get(key.encode())

    @property
    def is_serial(self) -> bool:
        """Whether tensorpack wrote the file, as `TensorpackRegions` reads it."""
        return self._get(_SERIAL_KEYS) is not None

    def _read(self, key: str) -> Any:
        return self._array(_unpickle(self._get(key) or b"")[_FEATURES])

    def _array(self, features: Any) -> Any:
        """Features as an array, which may be in base64."""
        if isinstance(features, bytes | str):
            numbers = np.frombuffer(b64decode(features, validate=True), dtype=np.float32)
            return numbers.reshape(-1, self.region_size) if numbers.size % self.region_size == 0 else numbers
        return features

    def _has(self, key: str) -> bool:
        return key != _KEYS and self._get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return (key.decode() for key in self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[bytes]:
        try:
            return _unpickle(self._get(_KEYS) or b"")
        except Exception as error:
            raise RegionError(f"{self.path}: no list of its images: {error}") from error


class TensorpackRegions(LmdbRegions):
    """Reads the files that tensorpack's `LMDBSerializer` writes for pre-training, such as VOLTA's and IGLUE's
    `training_feat_all.lmdb` of Conceptual Captions: records under `00000000`, `00000001`, …, each a list [features,
    …, image id, caption] of thirteen, or a dict with `features` and `img_id`, as msgpack or as a pickle.

    The first image that is asked for makes the process read the ids of all records, without their features.
    """

    _index: dict[str, bytes] | None = None

    def _keys_by_image(self) -> dict[str, bytes]:
        """Image id -> the key of its first record."""
        if self._index is None:
            index: dict[str, bytes] = {}
            with self._file.begin(buffers=True) as transaction:
                for key, value in transaction.cursor():
                    if bytes(key) != _SERIAL_KEYS.encode():
                        index.setdefault(self._part(value, bytes(key), "img_id", 11), bytes(key))
            self._index = index
        return self._index

    def _part(self, value: Any, key: bytes, name: str, position: int) -> Any:
        """A part of a record: the one with a name, or at a position."""
        try:
            is_pickle = bytes(value[:1]) == pickle.PROTO and value[1] < 6
            record = _unpickle(bytes(value)) if is_pickle else self._unpacked(value)
            return record[name] if isinstance(record, dict) else record[position]
        except Exception as error:
            raise RegionError(
                f"{self.path}, record {key.decode()}: {name} cannot be read ({error}); records are read as msgpack or "
                "pickles, with which tensorpack writes them unless TENSORPACK_SERIALIZE=pyarrow"
            ) from error

    def _unpacked(self, value: Any) -> Any:
        options = {"object_hook": _named_or_array, "raw": False, "strict_map_key": False}
        return _library("msgpack", self.path).unpackb(value, **options)

    def _has(self, key: str) -> bool:
        return key in self._keys_by_image()

    def _read(self, key: str) -> Any:
        stored = self._keys_by_image()[key]
        return self._array(self._part(self._get(stored.decode()) or b"", stored, _FEATURES, 0))

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys_by_image())

    def __len__(self) -> int:
        return len(self._keys_by_image())


def _named_or_array(stored: dict[Any, Any]) -> Any:
    """A dictionary of a record by names; or the array or the number that msgpack-numpy has written as `nd`, `type`,
    `shape` and `data`. (That package itself would run pickles that arrays of objects hold.)"""
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
    if "nd" not in named:
        return named
    flat = np.frombuffer(named["data"], np.dtype(named["type"]))
    return flat.reshape(named["shape"]) if named["nd"] else flat[0]


class FolderRegions(RegionFeatures):
    """Reads a file for each image, `.npy` or `.npz`, in the folder or in folders inside it."""

    def _open(self) -> None:
        if not self.path.is_dir():
            raise RegionError(f"{self.path}: no folder")

    def _file_of(self, image_id: str) -> Path | None:
        candidates = (self.path / f"{image_id}{suffix}" for suffix in (".npy", ".npz"))
        inside = self.path.resolve()
        return next((file for file in candidates if file.resolve().is_relative_to(inside) and file.is_file()), None)

    def _read(self, key: str) -> np.ndarray:
        file = self._file_of(key) or self.path
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            name = next((name for name in _ARRAYS if name in loaded), None)
            if name is None:
                raise RegionError(f"{file}: has {loaded.files}, none of {list(_ARRAYS)}")
            return loaded[name]

    def _has(self, key: str) -> bool:
        return self._file_of(key) is not None

    def __iter__(self) -> Iterator[str]:
        for file in sorted(self.path.rglob("*.np[yz]")):
            if not file.name.endswith("_info.npy"):
                yield str(file.relative_to(self.path).with_suffix(""))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def open_regions(path: str | Path, *, region_size: int = 2048, max_regions: int = 36) -> RegionFeatures:
    """Returns the reader for a path: `.h5` or `.hdf5`, an LMDB folder or `.lmdb` file, or a folder of arrays. An image
    is looked up by its id with or without the ending of an image file.

    Args:
        path: the file or folder.
        region_size, max_regions: as in `Rc3Config`.

    Raises:
        RegionError: as `RegionFeatures`.
        ImportError: as `RegionFeatures`.

    Examples:
        >>> regions = open_regions("flickr30k_boxes36.h5")
        >>> processor(text="ein rotes Auto", language="de", regions=regions["1000092795"])
    """
    path = Path(path)
    reader: type[RegionFeatures] = FolderRegions
    if path.suffix in (".h5", ".hdf5"):
        reader = H5Regions
    elif path.suffix == ".lmdb" or (path / "data.mdb").is_file():
        reader = LmdbRegions
        if LmdbRegions(path).is_serial:
            reader = TensorpackRegions
    return reader(path, region_size=region_size, max_regions=max_regions)


# ---- Pickles of strangers ----


class _ArrayUnpickler(pickle.Unpickler):
    """Knows the names by which numpy's arrays and scalars are pickled, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        # numpy 1 wrote numpy.core, numpy 2 writes numpy._core.
        if (found := _PICKLED_BY.get((module.replace("numpy._core", "numpy.core"), name))) is None:
            raise pickle.UnpicklingError(f"a pickle that would run {module}.{name}")
        return found


def _unpickle(data: bytes) -> Any:
    return _ArrayUnpickler(BytesIO(data)).load()


def _scalar(dtype: np.dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype, count=1)[0]


def _array(data: Any, dtype: np.dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(data, dtype).reshape(shape, order=order)  # type: ignore[call-overload]


_PICKLED_BY: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _array,
    ("_codecs", "encode"): lambda text, encoding: text.encode(encoding),  # protocol 2 writes bytes so
}


def _library(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{path} needs {name}: pip install {name}") from error
