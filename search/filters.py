"""Filters by metadata, such as `width > 500 and license in ["cc0", "cc-by"]`: one syntax for all engines.

A filter is a Python expression, which Python's own parser reads, of

    comparisons     width > 500    license == "cc0"    100 <= width < 500    with == != < <= > >=
    lists           license in ["cc0", "cc-by"]    license not in ["unknown"]
    missing values  author is None    author is not None
    logic           … and …    … or …    not …    ( … )

whose names are columns of the metadata, or `id`, and whose values are numbers, texts, True and False. Nothing is
executed: the parsed expression is translated for Arrow and into LanceDB's SQL. As in SQL, a comparison with a
missing value is neither true nor false, and its row is left out, also below `not`.
"""

import ast
import datetime
from dataclasses import dataclass
from typing import Any, NoReturn

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
                found = parts[0]
                for part in parts[1:]:
                    found = _both(found, part) if isinstance(op, ast.And) else _either(found, part)
                return found
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.translate(operand)
                return Filter(~inner.arrow, f"(NOT {inner.sql})")
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others[:-1]], ops, others, strict=True)
                parts = [self._comparison(one, op, other) for one, op, other in pairs]
                found = parts[0]
                for part in parts[1:]:
                    found = _both(found, part)
                return found
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
                values = [self._value(element) for element in elements]
                unknown = pa.scalar(None, pa.bool_())
                try:
                    among = pc.if_else(column.is_valid(), column.isin(values), unknown)
                except (pa.ArrowInvalid, pa.ArrowTypeError):
                    self._refuse(right, "a list of values of one type")
                sql = f"({sql} IN ({', '.join(map(_sql_value, values))}))"
                return Filter(among, sql) if isinstance(op, ast.In) else Filter(~among, f"(NOT {sql})")
            case ast.In() | ast.NotIn(), _:
                self._refuse(right, 'a list of values, such as `["a", "b"]`')
        if type(op) not in _SQL:
            self._refuse(right, "None after `is`")
        if isinstance(right, ast.Name):
            other = self._column(right)
            return Filter(_ARROW[type(op)](column, pc.field(other)), f"({sql} {_SQL[type(op)]} {_quoted_name(other)})")
        arrow, text = self._typed(name, self._value(right))
        return Filter(_ARROW[type(op)](column, arrow), f"({sql} {_SQL[type(op)]} {text})")

    def _typed(self, name: str, value: Value) -> tuple[Any, str]:
        """A value for Arrow and in SQL; a text beside a column of dates or times is one of these."""
        kind = self.schema.field(name).type
        if not isinstance(value, str) or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return value, _sql_value(value)
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
        if sign < 0:
            if not isinstance(node.value, int | float):
                self._refuse(node, "a number after the sign")
            return -node.value
        return node.value

    def _refuse(self, node: ast.expr, wanted: str) -> NoReturn:
        raise FilterError(f"{self.text!r}: where {ast.unparse(node)!r} stands, a filter has {wanted}")


def _both(one: Filter, other: Filter) -> Filter:
    return Filter(one.arrow & other.arrow, f"({one.sql} AND {other.sql})")


def _either(one: Filter, other: Filter) -> Filter:
    return Filter(one.arrow | other.arrow, f"({one.sql} OR {other.sql})")


def _quoted_name(name: str) -> str:
    return f"`{name}`"


def _sql_value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
