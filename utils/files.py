"""Atomic writes, in which a file or a folder appears complete or not at all."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .errors import BabelensError, InputError, SaveError, did_you_mean

SCRATCH = ".babelens-unfinished-"  # begins the names of temporary folders, and of nothing else
# Libraries written in Rust, such as tokenizers and safetensors, end the messages of system errors like this.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)$")


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path to write to, which replaces `path`, or the target of the link `path`, if the block ends
    without an error. Missing parent folders are created.

    Examples:
        >>> with atomic_file("results.json") as unfinished:
        ...     unfinished.write_text("{}")
    """
    target = Path(os.path.realpath(path))
    with errors_naming(path):
        if target.exists() and not target.is_file():  # replacing a device would remove it
            raise OSError("path exists and is not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            yield unfinished
            apply_umask(unfinished)
            os.replace(unfinished, target)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yields an empty folder, which becomes `path` unless the block fails or another process has created `path`."""
    check_new(path)
    target = Path(os.path.realpath(path))
    with (
        errors_naming(path),
        ensure_parents(target.parent),
        TemporaryDirectory(prefix=SCRATCH, dir=target.parent) as scratch,
    ):
        unfinished = Path(scratch, target.name)
        unfinished.mkdir()
        yield unfinished
        apply_umask(*unfinished.rglob("*"))
        unfinished.rename(target)  # replaces an empty folder


def check_new(path: str | Path) -> None:
    """Checks, before the work that fills a folder, that its path is free or an empty folder."""
    path = Path(path)
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists: name a new folder")


@contextmanager
def ensure_parents(folder: Path) -> Iterator[None]:
    """Creates a folder and its missing parents; after the block, removes those that are still empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:
            try:
                path.rmdir()
            except OSError:  # it is not empty
                break


def remove_unfinished(folder: str | Path) -> None:
    """Removes the unfinished files and folders that killed processes left in a folder."""
    for scratch in Path(folder).glob(f"{SCRATCH}*"):
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def errors_naming(path: str | Path) -> Iterator[None]:
    """Converts an error of the disk, from any library, to a `SaveError` that names `path`."""
    try:
        yield
    except BabelensError:
        raise
    except Exception as error:
        found = _SYSTEM_ERROR.search(str(error))
        number = getattr(error, "errno", None) or (int(found[1]) if found else None)
        is_of_library = type(error).__name__ == "SafetensorError" or "inline_container" in str(error)  # torch's
        if not isinstance(error, OSError) and number is None and not is_of_library:
            raise
        reason = getattr(error, "strerror", None) or error
        told = SaveError(f"{path} could not be written, and nothing was left there: {reason}")
        told.errno = number or errno.EIO
        raise told from error


def apply_umask(*paths: Path) -> None:
    """Gives files the permissions of any new file; libraries write weights through files that only their owner can
    read."""
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    if files:
        with TemporaryDirectory(prefix=SCRATCH, dir=files[0].parent) as scratch:
            probe = Path(scratch, "probe")
            probe.touch()
            for file in files:
                shutil.copymode(probe, file)


def optional_file(source: str | os.PathLike, name: str, loading: Mapping[str, Any]) -> Path | None:
    """Returns a file in a folder or a repository, or None; `loading` may contain all arguments of
    `from_pretrained`."""
    from transformers.utils import cached_file  # commands answer --help without it

    where = {key: loading[key] for key in ("cache_dir", "local_files_only", "revision", "token") if key in loading}
    found = cached_file(str(source), name, _raise_exceptions_for_missing_entries=False, **where)
    return None if found is None else Path(found)


def wrong_encoding(error: UnicodeDecodeError) -> str:
    kind = ", but UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in error.object else ""
    byte = f"byte 0x{error.object[error.start]:02x}"
    return f"not UTF-8{kind} ({byte} at position {error.start}): save the file as UTF-8"


def no_folder(source: str) -> str:
    """Returns the message for a model name that is neither a local folder nor a valid name on the Hub."""
    parent = Path(source).parent
    hint = did_you_mean(Path(source).name, [each.name for each in parent.iterdir()] if parent.is_dir() else [])
    return f"No folder {source!r} here{hint or '; names on the Hugging Face Hub are OWNER/NAME'}"
