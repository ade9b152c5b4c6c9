"""Shared code of the analyses: importing the libraries of the extra, and converting results to JSON."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...utils.errors import MissingExtraError


@contextmanager
def analysis_extra() -> Iterator[None]:
    """A context for importing scikit-learn, scipy and matplotlib, with an error that says how to install them."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"analyses need {error.name or 'a library that cannot be imported'}: "
            "pip install matplotlib scikit-learn scipy"
        ) from error


def as_json(result: Any) -> Any:
    """Converts the numbers of an analysis to JSON values: dataclasses to objects, arrays to lists, NaN to null."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {field.name: as_json(getattr(result, field.name)) for field in dataclasses.fields(result)}
    if isinstance(result, Mapping):
        return {str(name): as_json(value) for name, value in result.items()}
    if isinstance(result, np.ndarray):
        return as_json(result.tolist())
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    if isinstance(result, np.generic):
        result = result.item()
    return None if isinstance(result, float) and not np.isfinite(result) else result
