"""Errors of writing a tokenizer's files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Libraries in Rust, such as tokenizers and safetensors, end the messages of system errors like this.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)$")


def system_error_number(error: Exception) -> int | None:
    """Returns the number of the system error that the message of a Rust library ends with, or None."""
    found = _SYSTEM_ERROR.search(str(error))
    return int(found[1]) if found else None


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turns the bare `Exception` that tokenizers raises when it cannot write into an `OSError`.

    Raises:
        OSError: if a tokenizer in the block could not be written.
    """
    try:
        yield
    except Exception as error:
        number = system_error_number(error)
        if type(error) is not Exception or number is None:
            raise
        raise OSError(number, str(error)) from error
