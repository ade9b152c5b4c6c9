"""The images of corpora: cells {bytes, path}, paths that data name, and folders of photos."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import PIL.features
import PIL.Image

from ...processing.images import HEIC_ADVICE, open_image, readable_formats, regular_file
from ...utils.errors import CorpusError, ImageError

# ---- Images in cells ----


def read_image(value: Any, place: str, *, draft: int | None = None) -> PIL.Image.Image:
    """Returns the upright RGB image in a cell {bytes, path} of an undecoded `datasets.Image` column (see
    `open_image`)."""
    try:
        return open_image(image_source(value), draft=draft)
    except ImageError as error:
        raise CorpusError(f"{place}: {error}") from error


def check_image(source: str | Path | bytes) -> None:
    """Raises the error that `open_image` would raise, in less time: JPEGs are decoded at an eighth of their size."""
    open_image(source, draft=1)


def image_bytes(value: Any, place: str) -> bytes:
    try:
        source = image_source(value)
        return source if isinstance(source, bytes) else regular_file(source).read_bytes()
    except (ImageError, OSError) as error:
        raise CorpusError(f"{place}: {error}") from error


def image_source(value: Any) -> str | bytes:
    """Returns the bytes of the image in such a cell, downloaded from a remote address, or the path of a local file."""
    if value is None or (value["bytes"] is None and value["path"] is None):
        raise ImageError("no image")
    if value["bytes"] is not None or "://" not in value["path"]:
        return value["path"] if value["bytes"] is None else value["bytes"]
    try:
        with fsspec.open(value["path"]) as file:
            return file.read()
    except Exception as error:  # file system libraries raise unrelated types for an address
        raise ImageError(f"{value['path']}: {error}") from error


def path_inside(folder: str | Path, name: str, place: str) -> Path:
    """Returns the absolute path of a file whose name comes from data. Links in the folder are allowed."""
    path = Path(name)
    if path.anchor or ".." in path.parts:
        raise CorpusError(f"{place}: {name!r} leaves the folder {folder}; name a file in it, without '..'")
    return Path(folder).absolute() / name


# ---- Folders of photos ----

# Files and folders that users did not make, in lower case; names that begin with a dot are hidden too.
_SYSTEM = {
    *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot"),  # Synology
    *("@recycle", "@recently-snapshot", "@transcode", "network recycle bin"),  # QNAP
    *("$recycle.bin", "$extend", "recycler", "recycled", "system volume information", "msocache"),  # Windows
    *("__macosx", "network trash folder", "temporary items", "thevolumesettingsfolder"),  # macOS
    *("lost+found", "lost.dir", "~snapshot"),  # Linux, Android, NetApp
    *("files_trashbin", "files_versions"),  # Nextcloud
    *("_vti_cnf", "_vti_pvt"),  # FrontPage: text files that are named like the photos
}
# Windows' recovered fragments, Nextcloud's previews, Lightroom's previews and catalogues
_SYSTEM_PATTERN = re.compile(r"found\.\d{3}|appdata_\w+|.*\.(lrdata|lrcat-data)")
# Photos and iPhoto keep photographs in these folders of a library; the other folders hold derived images.
_LIBRARY = re.compile(r".*\.(photoslibrary|photolibrary|aplibrary|migrated\w*library)")
_ORIGINALS = {"originals", "masters"}
# Takeout names the folder of deleted photographs in the user's language.
_TAKEOUT = re.compile(r"google (photos|fotos?|фото)")
_TAKEOUT_TRASH = {
    *("trash", "bin", "papierkorb", "corbeille", "papelera", "cestino", "lixeira", "lixo", "prullenbak", "kosz"),
    *("papperskorg", "papirkurv", "roskakori", "koš", "корзина", "кошик", "çöp kutusu", "ゴミ箱", "回收站", "휴지통"),
}

_HEIC = (".heic", ".heif", ".heics", ".heifs", ".hif")
_HEIC_BRANDS = (b"hei", b"hev", b"mif", b"msf")  # begin the kind of such a file, as of phones that name it `.jpg`
_RAW = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos", ".mrw", ".nef"),
    *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
)
_OTHERS = ("ai", "avif", "eps", "exr", "ico", "jxl", "pcx", "psb", "psd", "svg", "svgz", "tga", "xcf")
# Why images of other formats are not read, by the endings of their names
_OTHER_KINDS = {
    **dict.fromkeys(_HEIC, HEIC_ADVICE),
    **dict.fromkeys(_RAW, "RAW is not supported"),
    **{f".{kind}": f"{kind.upper()} is not supported" for kind in _OTHERS},
}
_DATA = {".arrow", ".csv", ".gz", ".json", ".jsonl", ".parquet", ".py", ".tar", ".tsv", ".txt", ".xml", ".zip"}
_THREADS = 8  # number of threads that open images; each holds one decoded image
_SHOWN = 3  # number of skipped files named for each reason


def is_system_name(name: str) -> bool:
    lower = name.lower()
    return name.startswith(".") or lower in _SYSTEM or bool(_SYSTEM_PATTERN.fullmatch(lower))


def image_suffixes() -> set[str]:
    formats = readable_formats()
    known = {suffix for suffix, name in PIL.Image.registered_extensions().items() if name in formats}
    return known if PIL.features.check("avif") else known - {".avif", ".avifs"}


def walk_images(
    folder: Path, skipped: dict[str, str], *, utf8_names: bool = False
) -> Iterator[tuple[str, os.stat_result]]:
    """Yields (path in the folder, state) of the images of a folder, which may itself be hidden, sorted by path. Links
    to files are followed, links to folders are not; hidden and system entries are ignored. `skipped` receives the
    images that cannot be read: path -> reason, with `utf8_names` also those whose names a text column cannot hold."""
    suffixes = image_suffixes()
    for name, entry in _visible(folder, "", skipped, os.path.realpath(folder)):
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in suffixes:
            if suffix in _OTHER_KINDS:
                skipped[name] = _OTHER_KINDS[suffix]
            continue
        try:
            state = entry.stat()
        except OSError as error:
            skipped[name] = _of_os(error)
            continue
        if not stat.S_ISREG(state.st_mode):
            skipped[name] = "not a file"
        elif not state.st_size:
            skipped[name] = "empty"
        elif utf8_names and os.fsencode(name).decode(errors="replace") != name:
            skipped[name] = "its name is not UTF-8"
        else:
            yield name, state


def is_photo_folder(folder: Path) -> bool:
    """Returns whether a folder and its subfolders have images, and no data set files."""
    names = (name for name, _ in _visible(folder, "", {}, os.path.realpath(folder)))
    endings = {os.path.splitext(name)[1].lower() for name in names}
    return bool(endings & (image_suffixes() | {*_OTHER_KINDS})) and not endings & _DATA


def _visible(folder: Path, inside: str, skipped: dict[str, str], root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    # Strings: making a Path for each of a million files takes longer than everything else here.
    here = os.path.basename(folder).lower()
    is_library, is_takeout = bool(_LIBRARY.fullmatch(here)), bool(_TAKEOUT.fullmatch(here))
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if not inside:
            raise
        skipped[inside] = _of_os(error)
        return
    for entry in ordered:
        name, lower = f"{inside}{entry.name}", entry.name.lower()
        if is_system_name(entry.name) or (is_takeout and lower in _TAKEOUT_TRASH):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not is_library or lower in _ORIGINALS:
                yield from _visible(folder / entry.name, f"{name}{os.sep}", skipped, root)
        elif entry.is_symlink() and os.path.isdir(entry):
            if not Path(os.path.realpath(entry)).is_relative_to(root):  # its images are not found elsewhere
                skipped[f"{name}{os.sep}"] = "links to folders are not followed"
        else:
            yield name, entry


def unreadable(paths: Iterable[Path]) -> dict[Path, str]:
    paths = list(paths)
    with ThreadPoolExecutor(_THREADS) as pool:
        return {path: reason for path, reason in zip(paths, pool.map(_defect, paths), strict=True) if reason}


def readable_images(folder: Path, skipped: dict[str, str]) -> list[Path]:
    paths = {folder / name: name for name, _ in walk_images(folder, skipped)}
    bad = unreadable(paths)
    skipped.update((paths[path], reason) for path, reason in bad.items())
    return [path for path in paths if path not in bad]


def skipped_line(skipped: Mapping[str, str], read: int) -> str:
    """Describes skipped files (path -> reason) in one line, which counts them and names some for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        by_reason.setdefault(reason, []).append("".join(each if each.isprintable() else "\ufffd" for each in name))
    reasons = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        reasons.append(f"{reason} ({', '.join(names[:_SHOWN])}{more})")
    total = len(skipped) + read
    return f"{len(skipped):,} of {total:,} {'file was' if total == 1 else 'files were'} skipped: {'; '.join(reasons)}"


def _defect(path: Path) -> str | None:
    try:
        check_image(path)
        return None
    except ImageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno is not None:
            return _of_os(cause)
        if isinstance(cause, PIL.UnidentifiedImageError):
            with path.open("rb") as file:
                start = file.read(12)
            is_heic = start[4:8] == b"ftyp" and start[8:11] in _HEIC_BRANDS and "HEIF" not in readable_formats()
            return HEIC_ADVICE if is_heic else "not an image, or damaged"
        return str(error).removeprefix(f"{path}: ") if cause is None else "broken, truncated or too large"


def _of_os(error: OSError) -> str:
    return "gone, or a broken link" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
