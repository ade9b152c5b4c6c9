from pathlib import Path

import numpy as np
import pytest


def write_h5(path: Path, images: dict[str, dict]) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for image_id, items in images.items():
            group = file.create_group(image_id)
            for name, value in items.items():
                group[name] = value


def packed(value) -> bytes:
    return pytest.importorskip("msgpack").packb(value, default=packed_array, use_bin_type=True)


def packed_array(value) -> dict:
    shape = {b"kind": b"", b"shape": value.shape} if isinstance(value, np.ndarray) else {}
    kind = {b"nd": isinstance(value, np.ndarray), b"type": value.dtype.str}
    return kind | shape | {b"data": value.tobytes()}


def write_serial(path: Path, records: list, dump=packed) -> Path:
    """Writes records under their numbers, in one file, as tensorpack's `LMDBSerializer.save`."""
    lmdb = pytest.importorskip("lmdb")
    keys = [f"{number:08}".encode() for number in range(len(records))]
    options = {"subdir": False, "map_size": 1 << 26}
    with lmdb.open(str(path), **options) as database, database.begin(write=True) as transaction:
        for key, record in zip(keys, records, strict=True):
            transaction.put(key, dump(record))
        transaction.put(b"__keys__", dump(keys))
    return path
