"""Writing files and folders whole: one appears with all that belongs to it, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRATCH = ".unfinished-"


@contextmanager
def written_file(path: str | Path) -> Iterator[Path]:
    """A path with the name of `path` to write to, whose file takes the place of `path` when the block ends well.

    Until then it is in a hidden folder beside `path`, which goes away in either case. Folders above `path` are made;
    a link is followed, so that it stays a link.

    Raises:
        OSError: when the file cannot be written, or `path` is something else than a file. The message names `path`,
            and what was there before is still there.
    """
    target = Path(os.path.realpath(path))
    with errors_naming(path):
        if target.exists() and not target.is_file():  # moving a file there would remove a device
            raise OSError("there is something of that name that is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            yield unfinished
            _reach_disk(unfinished)
            os.replace(unfinished, target)


@contextmanager
def written_folder(folder: str | Path) -> Iterator[Path]:
    """An empty folder to write files to, which becomes `folder` when the block ends well, and goes away otherwise.

    When another process has made `folder` in the meantime, that one is kept.

    Raises:
        OSError: when it cannot be written; the message names `folder`.
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
    """Turns what any library says when it cannot write into one sentence.

    Raises:
        OSError: with the number of the original error. The message names `path` and says what is `left` of it.
    """
    try:
        yield
    except OSError as error:
        told = OSError(f"{path} could not be written, and {left}: {error.strerror or error}")
        told.errno = error.errno
        raise told from error


def _reach_disk(file: Path) -> None:
    """After this, a power failure does not empty the file."""
    with file.open("rb+") as written:
        os.fsync(written.fileno())
