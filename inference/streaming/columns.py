"""Columns of metadata: what of an image or text is kept beside its embedding."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...configuration.errors import CorpusError, InputError
from ...processing.text_inputs import shown_briefly
from ..embedding_shards import EMBEDDING, ID

TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}
_FITS: dict[pa.DataType, Callable[[Any], bool]] = {
    TYPES["int"]: lambda value: isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63,
    TYPES["float"]: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    TYPES["bool"]: lambda value: isinstance(value, bool),
}


def parse_columns(columns: Sequence[str]) -> dict[str, str | None]:
    """The names and types of columns such as `["url", "width:int"]`; a column without a type has None.

    Raises:
        InputError: for an unknown type, a name that is given twice, or one that the embeddings have themselves.
    """
    parsed: dict[str, str | None] = {}
    for column in columns:
        name, _, kind = column.partition(":")
        if not name or name in (ID, EMBEDDING) or name in parsed:
            raise InputError(f"{column!r} is no column of its own: give every name once, and not {ID} or {EMBEDDING}")
        if kind and kind not in TYPES:
            raise InputError(f"{column!r}: {kind!r} is no type of a column; there are {', '.join(TYPES)}")
        parsed[name] = kind or None
    return parsed


def schema_of(columns: Mapping[str, str | None], stored: pa.Schema | None = None) -> pa.Schema:
    """The columns with their types: those that were named, else those of a parquet file, else text.

    Args:
        columns: as `parse_columns` returns them.
        stored: the columns of a parquet source.

    Raises:
        CorpusError: for a column that the parquet source does not have.
    """
    if stored is not None and (missing := [name for name in columns if name not in stored.names]):
        raise CorpusError(f"no column {', '.join(missing)}; there are {', '.join(stored.names)}")
    own = {name: stored.field(name).type for name in columns} if stored is not None else {}
    return pa.schema([(name, TYPES[kind] if kind else own.get(name, pa.string())) for name, kind in columns.items()])


def as_type(value: Any, field: pa.Field) -> Any:
    """A value as its column holds it. A column of text holds other values as JSON.

    Raises:
        CorpusError: for a value of another type.
    """
    if value is None:
        return None
    if field.type == pa.string() and isinstance(value, str):
        return value
    if field.type not in _FITS or _FITS[field.type](value):
        try:
            if field.type == pa.string():
                return json.dumps(value, ensure_ascii=False)
            pa.array([value], field.type)
            return value
        except (TypeError, ValueError, OverflowError, pa.ArrowException):  # no JSON, or no value of the type
            pass
    raise CorpusError(f"{field.name} is {shown_briefly(value)}, and not of the column's type {field.type}")
