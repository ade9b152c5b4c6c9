"""Filters by metadata, such as `width > 500 and license in ["cc0", "cc-by"]`: one syntax for all engines.

A filter is a Python expression, which Python's own parser reads, of

    comparisons     width > 500    license == "cc0"    100 <= width < 500    with == != < <= > >=
    lists           license in ["cc0", "cc-by"]    license not in ["unknown"]
    missing values  author is None    author is not None
    logic           … and …    … or …    not …    ( … )

whose names are columns of the metadata, or `id`, and whose values are numbers, texts, True and False. Nothing is
executed: the parsed expression is translated for Arrow and into LanceDB's SQL. As in SQL, a comparison with a
missing value is neither true nor false, and its row is left out, also below `not`. Numbers are compared by their
values, whatever the type of the column: `width > 2.5` means `width >= 3`, and NaN is equal to nothing, greater than
nothing and less than nothing.
"""

import ast
import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..configuration.errors import FilterError

_SQL = {ast.Eq: "=", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_ARROW = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.Lt: lambda one, other: one < other,
    ast.LtE: lambda one, other: one <= other,
    ast.Gt: lambda one, other: one > other,
    ast.GtE: lambda one, other: one >= other,
}
_MOST_NAMES = 1000  # Arrow's own stack ends at some thousand, and the process with it
_SYNTAX = 'such as `width > 500 and license in ["cc0", "cc-by"]`'

Value = str | bool | int | float


@dataclass(frozen=True)
class Filter:
    """A filter that fits the columns of an index.

    Args:
        arrow: the filter as an expression of Arrow.
        sql: the same filter in the SQL that LanceDB reads.
    """

    arrow: pc.Expression
    sql: str


def parse_filter(text: str, schema: pa.Schema) -> Filter:
    """Reads a filter and checks it.

    Args:
        text: the filter.
        schema: the columns that it may name, with their types.

    Raises:
        FilterError: for something that is no filter, a column that is not there, or a value of another type than that
            of its column.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        hint = "; equality is written `==`" if "=" in text and "==" not in text else ""
        raise FilterError(f"{text!r} is no filter, {_SYNTAX}: {getattr(error, 'msg', error)}{hint}") from None
    named = sum(isinstance(node, ast.Name) for node in ast.walk(tree))
    if named > _MOST_NAMES:
        raise FilterError(
            f"a filter that names columns {named:,} times, where {_MOST_NAMES:,} are allowed: compare with a list of "
            'values, such as `license in ["cc0", "cc-by"]`'
        )
    try:
        found = _Translator(text, schema).translate(tree)
    except RecursionError:
        raise FilterError(f"a filter of {len(text)} characters is nested too deeply") from None
    try:
        ds.dataset(schema.empty_table()).scanner(columns={"keep": found.arrow}).to_table()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        types = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise FilterError(f"{text!r} compares a column with a value of another type; the columns: {types}") from error
    return found


class _Translator:
    """Translates the parsed expression of a filter."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text = text
        self.schema = schema

    def translate(self, node: ast.expr) -> Filter:
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self.translate(value) for value in values]
                return _joined(parts, _both if isinstance(op, ast.And) else _either)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.translate(operand)
                return Filter(~inner.arrow, f"(NOT {inner.sql})")
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others[:-1]], ops, others, strict=True)
                return _joined([self._comparison(one, op, other) for one, op, other in pairs], _both)
            case ast.Name():  # a column of truth values
                name = self._column(node)
                if not pa.types.is_boolean(self.schema.field(name).type):
                    self._refuse(node, f"a comparison, such as `{name} == …`")
                return Filter(pc.field(name), _quoted_name(name))
        self._refuse(node, "a comparison")

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Filter:
        if not isinstance(left, ast.Name):
            if not isinstance(right, ast.Name) or type(op) not in _FLIPPED:
                self._refuse(left, "the name of a column")
            left, op, right = right, _FLIPPED[type(op)](), left
        name = self._column(left)
        column, sql = pc.field(name), _quoted_name(name)
        match op, right:
            case ast.Is() | ast.IsNot(), ast.Constant(value=None):
                missing = isinstance(op, ast.Is)
                return Filter(
                    column.is_null() if missing else column.is_valid(), f"({sql} IS {'' if missing else 'NOT '}NULL)"
                )
            case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements) if elements:
                among = self._among(name, right, [self._value(element) for element in elements])
                return among if isinstance(op, ast.In) else Filter(~among.arrow, f"(NOT {among.sql})")
            case ast.In() | ast.NotIn(), _:
                self._refuse(right, 'a list of values, such as `["a", "b"]`')
        if type(op) not in _SQL:
            self._refuse(right, "None after `is`")
        if isinstance(right, ast.Name):
            other = self._column(right)
            return Filter(_ARROW[type(op)](column, pc.field(other)), self._sql(type(op), name, other))
        return self._compared(name, type(op), self._value(right))

    def _compared(self, name: str, op: type[ast.cmpop], value: Value) -> Filter:
        """A comparison of a column with a value."""
        kind = self.schema.field(name).type
        if pa.types.is_integer(kind) and not isinstance(value, str | bool):
            op, value = _among_integers(op, value, kind)
        arrow, sql = self._typed(name, value)
        return Filter(_ARROW[op](pc.field(name), arrow), self._sql(op, name, None, sql))

    def _among(self, name: str, node: ast.expr, values: list[Value]) -> Filter:
        """Whether the value of a column is one of these."""
        kind, column = self.schema.field(name).type, pc.field(name)
        if pa.types.is_integer(kind):
            compared = [
                (ast.Eq, each) if isinstance(each, str | bool) else _among_integers(ast.Eq, each, kind)
                for each in values
            ]
            values = [value for op, value in compared if op is ast.Eq]
            if not values:
                return self._compared(name, ast.Lt, -math.inf)
        typed = [self._typed(name, value) for value in values]
        try:
            among = column.isin(pa.array([arrow.as_py() for arrow, _ in typed], typed[0][0].type))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            self._refuse(node, "a list of values of one type")
        among = pc.if_else(column.is_valid(), among, pa.scalar(None, pa.bool_()))
        return Filter(among, f"({_quoted_name(name)} IN ({', '.join(sql for _, sql in typed)}))")

    def _sql(self, op: type[ast.cmpop], name: str, other: str | None, value: str = "") -> str:
        """A comparison of a column with another one, or with a value. To SQL, NaN is the greatest number."""
        sql = f"{_quoted_name(name)} {_SQL[op]} {_quoted_name(other) if other else value}"
        for each in filter(None, (name, other)):
            if pa.types.is_floating(self.schema.field(each).type):
                nan = f"isnan({_quoted_name(each)})"
                sql = f"({sql} OR {nan})" if op is ast.NotEq else f"({sql} AND NOT {nan})"
        return f"({sql})"

    def _typed(self, name: str, value: Value) -> tuple[pa.Scalar, str]:
        """A value for Arrow and in SQL: a number beside a column of numbers, and a text beside one of dates or times,
        is of the type of the column."""
        kind = self.schema.field(name).type
        is_number = not isinstance(value, str | bool)
        try:
            if is_number and pa.types.is_integer(kind):
                # SQL reads a sign apart from its number, and the lowest one would have none of this size.
                return pa.scalar(value, kind), "(-9223372036854775807 - 1)" if value == -(2**63) else repr(value)
            if is_number and pa.types.is_floating(kind):
                return pa.scalar(float(value)).cast(kind), repr(float(value))
            if not isinstance(value, str) or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
                return pa.scalar(value), _sql_value(value)
        except OverflowError as error:
            raise FilterError(f"{self.text!r}: no value of {name} ({kind}) can be as large as {value}") from error
        try:
            moment = datetime.datetime.fromisoformat(value)
            sql = f"date '{moment.date()}'" if pa.types.is_date(kind) else f"timestamp '{moment.isoformat(' ')}'"
            return pa.scalar(moment).cast(kind), sql
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FilterError(f"{self.text!r}: {value!r} is no {kind}, such as '2026-01-31'") from error

    def _column(self, node: ast.Name) -> str:
        if node.id not in self.schema.names:
            columns = ", ".join(self.schema.names)
            raise FilterError(
                f"{self.text!r} names {node.id!r}, which is no column of the index; these are: {columns}"
            )
        return node.id

    def _value(self, node: ast.expr) -> Value:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bool | int | float):
            self._refuse(node, "a number, a text in quotation marks, True or False")
        if isinstance(node.value, float) and not math.isfinite(node.value):
            self._refuse(node, "a number that is finite")
        if sign < 0:
            if not isinstance(node.value, int | float):
                self._refuse(node, "a number after the sign")
            return -node.value
        if isinstance(node.value, str) and not _is_unicode(node.value):
            self._refuse(node, "a text without half characters")
        return node.value

    def _refuse(self, node: ast.expr, wanted: str) -> NoReturn:
        raise FilterError(f"{self.text!r}: where {ast.unparse(node)!r} stands, a filter has {wanted}")


def _both(one: Filter, other: Filter) -> Filter:
    return Filter(one.arrow & other.arrow, f"({one.sql} AND {other.sql})")


def _either(one: Filter, other: Filter) -> Filter:
    return Filter(one.arrow | other.arrow, f"({one.sql} OR {other.sql})")


def _joined(parts: list[Filter], join: Callable[[Filter, Filter], Filter]) -> Filter:
    """Filters joined in pairs: a chain of hundreds would be nested more deeply than SQL is read."""
    while len(parts) > 1:
        last = parts[len(parts) // 2 * 2 :]
        parts = [join(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)] + last
    return parts[0]


def _among_integers(op: type[ast.cmpop], value: float, kind: pa.DataType) -> tuple[type[ast.cmpop], int]:
    """A comparison with a number that integers of a type can have, which says the same of all of them.

    A comparison that is true or false of all of them becomes one with the lowest or the highest.
    """
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = int(limits.min), int(limits.max)
    value = min(max(value, low - 1), high + 1)
    if op in (ast.Eq, ast.NotEq):
        if low <= value <= high and value == int(value):
            return op, int(value)
        return (ast.Lt if op is ast.Eq else ast.GtE), low
    if op in (ast.Lt, ast.LtE):
        last = math.ceil(value) - 1 if op is ast.Lt else math.floor(value)
        return (ast.LtE, min(last, high)) if last >= low else (ast.Lt, low)
    first = math.floor(value) + 1 if op is ast.Gt else math.ceil(value)
    return (ast.GtE, max(first, low)) if first <= high else (ast.Gt, high)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, such as "\\ud83d"
        return False
    return True


def _quoted_name(name: str) -> str:
    return f"`{name}`"


def _sql_value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
