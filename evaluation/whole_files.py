"""Files that are written as a whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A path at which to write; what is there becomes `file` when the block ends well, and vanishes when it does not.

    Raises:
        OSError: when the block cannot write, with `file` named.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as unfinished:
            path = Path(unfinished) / file.name
            yield path
            os.replace(path, file)
    except OSError as error:
        number, reason = error.errno or errno.EIO, error.strerror or error
        raise OSError(number, f"{file} could not be written, and nothing was left there: {reason}") from error
