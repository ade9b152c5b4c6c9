"""Writing a tokenizer's files."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_errors() -> Iterator[None]:
    """Has tokenizers say what the disk says: it raises a bare `Exception` when it cannot write.

    Raises:
        OSError: when a tokenizer in the block could not be written.
    """
    try:
        yield
    except Exception as error:
        if type(error) is Exception and "os error" in str(error):
            raise OSError(errno.EIO, str(error)) from error
        raise
