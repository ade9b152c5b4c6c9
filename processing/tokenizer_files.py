"""Writing a tokenizer's files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Libraries that are written in Rust, such as tokenizers and safetensors, end their messages so.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)$")


def system_error_number(error: Exception) -> int | None:
    """The number of the system's error that an exception of a library in Rust speaks of; None for any other."""
    found = _SYSTEM_ERROR.search(str(error))
    return int(found[1]) if found else None


@contextmanager
def disk_errors() -> Iterator[None]:
    """Has tokenizers say what the disk says: it raises a bare `Exception` when it cannot write.

    Raises:
        OSError: when a tokenizer in the block could not be written.
    """
    try:
        yield
    except Exception as error:
        number = system_error_number(error)
        if type(error) is not Exception or number is None:
            raise
        raise OSError(number, str(error)) from error
