import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

BROKEN = b"\x89PNG broken"


def drawn(number: int, size: tuple[int, int] = (20, 24)) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def write_tars(folder: Path, shards: int, each: int, broken: tuple[int, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for number in range(shard * each, (shard + 1) * each):
                add_member(tar, f"{number:04}.png", BROKEN if number in broken else drawn(number))
                facts = {
                    "url": f"https://example.org/{number}",
                    "width": number,
                    "captions": {"en": f"image {number}"},
                }
                add_member(tar, f"{number:04}.json", json.dumps(facts).encode())
    return folder


def write_parquet(file: Path, numbers: range, *, plain: bool = False) -> Path:
    images: list[Any] = [drawn(number) for number in numbers]
    columns: dict[str, Any] = {"width": pa.array(numbers, pa.int16())}
    if plain:
        columns["image"] = images
    else:
        columns["image"] = [{"bytes": image, "path": None} for image in images]
        columns["image_id"] = [f"{number:04}" for number in numbers]
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def write_images(folder: Path, numbers: range) -> Path:
    for number in numbers:
        path = folder / ("inner" if number % 2 else "") / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn(number))
    return folder


def write_captioned(folder: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """A folder of images whose metadata are the rows, for example `{"captions": {"en": ["a dog"]}}`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"file_name": f"{number}.png"} | row) for number, row in enumerate(rows)]
    for number in range(len(lines)):
        (folder / f"{number}.png").write_bytes(drawn(number))
    (folder / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
