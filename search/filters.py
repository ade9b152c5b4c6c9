"""Filters by metadata, such as `width > 500 and license in ["cc0", "cc-by"]`, as LanceDB's SQL.

A filter is a Python expression, which Python's own parser reads and nothing executes, of

    comparisons     width > 500    license == "cc0"    100 <= width < 500    width > height
    lists           license in ["cc0", "cc-by"]    license not in ["unknown"]
    missing values  author is None    author is not None
    logic           … and …    … or …    not …    ( … )

It is translated and not passed on, since SQL rounds numbers, reads `"cc0"` as a column and counts NaN among the
numbers: here every value gets the type of its column, or the filter is refused. As in SQL, a comparison with a missing
value is neither true nor false, and its row is left out, also below `not`. NaN is unequal to everything, as in Python.
"""

import ast
import datetime
import math
import re
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import types

from ..configuration.errors import FilterError

_SQL = {ast.Eq: "=", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_MOST_NAMES, _MOST_NESTED = 1000, 40  # LanceDB refuses 45 pairs of parentheses, one inside the other


def filter_sql(text: str, schema: pa.Schema) -> str:
    """The SQL of a filter.

    Args:
        text: the filter.
        schema: the columns that it may name, with their types.

    Raises:
        FilterError: if it is not a filter, or names an unknown column, or a value that its column cannot hold.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        named = sum(isinstance(node, ast.Name) for node in ast.walk(tree))
        if named > _MOST_NAMES:
            raise FilterError(
                f"a filter that names columns {named:,} times, more than {_MOST_NAMES:,}: compare with lists of values"
            )
        sql = _Translator(text, schema).condition(tree)
        if max(accumulate((each == "(") - (each == ")") for each in re.sub("'[^']*'", "", sql))) > _MOST_NESTED:
            raise RecursionError
    except (SyntaxError, ValueError, MemoryError) as error:
        if isinstance(error, FilterError):
            raise
        hint = "; equality is written `==`" if "=" in text and "==" not in text else ""
        raise FilterError(
            f'{text!r} is not a filter, such as `width > 500 and license in ["cc0", "cc-by"]`: '
            f"{getattr(error, 'msg', error)}{hint}"
        ) from None
    except RecursionError:
        raise FilterError(f"a filter of {len(text)} characters is nested too deeply") from None
    return sql


class _Translator:
    """Translates the parsed expression of a filter; each method returns SQL in parentheses."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text, self.schema = text, schema

    def condition(self, node: ast.expr, negated: bool = False) -> str:
        """A condition or its negation, which is written at the comparisons: LanceDB is slow with nested NOT."""
        match node:
            case ast.BoolOp(op=op, values=values):
                joined = "AND" if isinstance(op, ast.And) != negated else "OR"
                return _joined([self.condition(value, negated) for value in values], joined)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.condition(operand, not negated)
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others[:-1]], ops, others, strict=True)
                compared = [self._comparison(one, op, other) for one, op, other in pairs]
                return _joined([_not(sql) if negated else sql for sql in compared], "OR" if negated else "AND")
            case ast.Name() if types.is_boolean(self._type(node)):
                return _not(f"`{node.id}`") if negated else f"(`{node.id}`)"
        self._refuse(node, "a filter has a comparison there, such as `width > 500`")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        if not isinstance(left, ast.Name) and isinstance(right, ast.Name) and type(op) in _FLIPPED:
            left, op, right = right, _FLIPPED[type(op)](), left
        if not isinstance(left, ast.Name):
            self._refuse(left, "a comparison has the name of a column there")
        kind, column = self._type(left), f"`{left.id}`"
        match op, right:
            case ast.Is() | ast.IsNot(), ast.Constant(value=None):
                return f"({column} IS {'' if isinstance(op, ast.Is) else 'NOT '}NULL)"
            case ast.In() | ast.NotIn(), ast.List(elts=[_, *_] as elements) | ast.Tuple(elts=[_, *_] as elements):
                values = ", ".join(self._value(left.id, kind, element) for element in elements)
                among = f"({_number(column, kind)} IN ({values}))"
                return among if isinstance(op, ast.In) else _not(among)
            case ast.In() | ast.NotIn(), _:
                self._refuse(right, 'a filter has a list of values there, such as `["a", "b"]`')
        if type(op) not in _SQL:
            self._refuse(right, "a filter has None after `is`")
        sql = _SQL[type(op)]
        if isinstance(right, ast.Name):
            # LanceDB counts NaN and -0.0 among the numbers in their order when it compares two columns.
            if types.is_floating(kind) or self._type(right) != kind or not _is_comparable(kind):
                self._refuse(
                    right, "two columns are compared only when both have whole numbers, texts or dates of one type"
                )
            return f"({column} {sql} `{right.id}`)"
        compared = f"({_number(column, kind)} {sql} {self._value(left.id, kind, right)})"
        is_ordered = types.is_floating(kind) and type(op) not in (ast.Eq, ast.NotEq)
        return f"({compared} AND (NOT isnan({column})))" if is_ordered else compared

    def _value(self, name: str, kind: pa.DataType, node: ast.expr) -> str:
        """A value in SQL, of the type of its column."""
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
        value: Any = node.value if isinstance(node, ast.Constant) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or isinstance(value, bytes) or (sign < 0 and not is_number):
            self._refuse(node, "a filter has a number, a text in quotation marks, True or False there")
        try:
            return _typed(kind, sign * value if is_number else value)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise FilterError(
                f"{self.text!r}: {name} ({kind}) cannot be compared with {ast.unparse(node)}: {error}"
            ) from None

    def _type(self, node: ast.Name) -> pa.DataType:
        if node.id not in self.schema.names:
            columns = ", ".join(self.schema.names)
            raise FilterError(
                f"{self.text!r} names {node.id!r}, which is not a column of the index; these are: {columns}"
            )
        return self.schema.field(node.id).type

    def _refuse(self, node: ast.expr, reason: str) -> NoReturn:
        raise FilterError(f"{self.text!r}, at {ast.unparse(node)!r}: {reason}")


def _typed(kind: pa.DataType, value: Any) -> str:
    """A value in SQL as one of a type; raises ValueError, OverflowError or Arrow's errors if it is not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if types.is_boolean(kind) and isinstance(value, bool):
        return str(value).lower()
    if (types.is_string(kind) or types.is_large_string(kind)) and isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text
        return "'" + value.replace("'", "''") + "'"
    if types.is_integer(kind) and is_number:
        limits = np.iinfo(kind.to_pandas_dtype())
        if not limits.min <= value <= limits.max or value != int(value):
            raise ValueError(f"its values are whole numbers from {limits.min} to {limits.max}")
        return _integer(int(value))
    if types.is_floating(kind) and is_number:
        with np.errstate(over="ignore"):
            held = float(kind.to_pandas_dtype()(value))
        if not math.isfinite(held) or (isinstance(value, int) and held != value):
            raise ValueError("its numbers are too coarse or too small for it")
        return repr(held + 0.0)  # 0.0 for -0.0
    if types.is_date(kind) and isinstance(value, str):
        return _integer(_counted(pa.scalar(datetime.date.fromisoformat(value)), kind))
    if types.is_timestamp(kind) and isinstance(value, str):
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            if kind.tz is None:
                raise ValueError("its times have no time zone")
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        return _integer(_counted(pa.scalar(moment), pa.timestamp(kind.unit)))
    raise ValueError("a value of another type")


def _counted(moment: pa.Scalar, kind: pa.DataType) -> int:
    """A date or a time as the number that a column holds for it."""
    return moment.cast(kind).cast(pa.int32() if types.is_date32(kind) else pa.int64()).as_py()


def _number(column: str, kind: pa.DataType) -> str:
    """A column as numbers, where it has dates or times."""
    if types.is_date(kind) or types.is_timestamp(kind):
        return f"CAST({column} AS {'INT' if types.is_date32(kind) else 'BIGINT'})"
    return column


def _is_comparable(kind: pa.DataType) -> bool:
    return types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind)


def _integer(value: int) -> str:
    # SQL reads a sign apart from its number, and the lowest one would have none of this size.
    return f"({value + 1} - 1)" if value == -(2**63) else str(value)


def _not(sql: str) -> str:
    return f"(NOT {sql})"


def _joined(parts: list[str], joined: str) -> str:
    """Conditions joined in pairs: a chain of hundreds would be nested too deeply."""
    while len(parts) > 1:
        last = parts[len(parts) // 2 * 2 :]
        parts = [f"({one} {joined} {other})" for one, other in zip(parts[::2], parts[1::2], strict=False)] + last
    return parts[0]
