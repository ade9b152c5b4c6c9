"""What all analyses share: the libraries of the extra, and their results as JSON can hold them."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...utils.errors import MissingExtraError


@contextmanager
def analysis_extra() -> Iterator[None]:
    """Around the imports of scikit-learn, scipy and matplotlib."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"analyses need {error.name or 'a library that cannot be imported'}: "
            "pip install matplotlib scikit-learn scipy"
        ) from error


def as_json(result: Any) -> Any:
    """The numbers of an analysis as JSON can hold them: dataclasses as objects, arrays as lists, NaN as null."""
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
