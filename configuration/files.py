"""Atomic writing of files and folders: either the complete result appears, or nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRATCH = ".unfinished-"


@contextmanager
def written_file(path: str | Path) -> Iterator[Path]:
    """Provides a path to write to; the file there replaces `path` if the block ends without an error.

    Until then the file is in a hidden folder beside `path`, which is removed in either case. Parent folders of `path`
    are created. If `path` is a link, the file it points to is replaced.

    Args:
        path: the file to create or replace.

    Yields:
        A path with the same file name.

    Raises:
        OSError: if the file cannot be written, or `path` exists and is not a file. The message names `path`, and the
            previous file is unchanged.

    Examples:
        >>> with written_file("results.json") as path:
        ...     path.write_text("{}")
    """
    target = Path(os.path.realpath(path))
    with errors_naming(path):
        if target.exists() and not target.is_file():  # replacing a device would remove it
            raise OSError("there is something of that name that is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            yield unfinished
            _reach_disk(unfinished)
            os.replace(unfinished, target)


@contextmanager
def written_folder(folder: str | Path) -> Iterator[Path]:
    """Provides an empty folder to write files to; it becomes `folder` if the block ends without an error.

    If another process has created `folder` in the meantime, that folder is kept.

    Args:
        folder: the folder to create.

    Yields:
        The folder to write to.

    Raises:
        OSError: if it cannot be written; the message names `folder`.
    """
    target = Path(os.path.realpath(folder))
    with errors_naming(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            unfinished.mkdir()
            yield unfinished
            for file in filter(Path.is_file, unfinished.rglob("*")):
                _reach_disk(file)
            try:
                unfinished.rename(target)
            except OSError:
                if not target.is_dir():
                    raise


@contextmanager
def errors_naming(path: str | Path, left: str = "nothing was left there") -> Iterator[None]:
    """Replaces an error of writing by an `OSError` whose one sentence names the path.

    Args:
        path: what is written.
        left: what the message says remains at `path`.

    Raises:
        OSError: with the number of the original error.
    """
    try:
        yield
    except OSError as error:
        named = OSError(f"{path} could not be written, and {left}: {error.strerror or error}")
        named.errno = error.errno
        raise named from error


def _reach_disk(file: Path) -> None:
    """Writes a file's content from the system's cache to the disk, so that a power failure does not empty it."""
    with file.open("rb+") as written:
        os.fsync(written.fileno())
