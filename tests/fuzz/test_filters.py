"""A filter keeps the rows that plain Python keeps, in searches and in deletions."""

import datetime
import math
import operator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from index_vectors import source_of, unit

from babelens.configuration.errors import FilterError
from babelens.search import build_index

INF, NAN, BIG = math.inf, math.nan, 2**53
VALUES = {
    "single": (pa.float32(), [0.1, 0.0, -0.0, INF, -INF, NAN, None, 1 / 3, 3e38, 1.5, -0.1, 16777216.0]),
    "double": (pa.float64(), [0.1, -0.0, 0.0, -INF, INF, NAN, None, 1 / 3, 1e300, 9007199254740992.0, -0.1, 5e-324]),
    "large": (pa.int64(), [BIG, BIG + 1, -BIG - 1, 2**63 - 1, -5, 0, None, 1, -1, 10**18, 10**18 + 1, 3]),
    "other": (pa.int64(), [BIG, BIG, 0, 2**63 - 1, 1, None, None, 2, -2, 10**18 + 1, 10**18, 3]),
    "unsigned": (pa.uint64(), [2**64 - 1, 2**63, BIG + 1, 0, 1, 2, None, 3, 4, 5, BIG, 7]),
    "small": (pa.uint8(), [0, 255, 127, 128, 1, 2, None, 3, 4, 5, 6, 7]),
    "text": (pa.string(), ["it's", 'a"b', "", "É", "a\\b", "%_", None, "Zürich", "a\nb", "\U0001f600", "''", " a"]),
    "day": (
        pa.date32(),
        [*(datetime.date(1970, 1, 1 + n) if n != 6 else None for n in range(10)), *[datetime.date(9999, 12, 31)] * 2],
    ),
    "flag": (pa.bool_(), [True, False, None, True, False, True, None, True, True, False, False, True]),
}
COLUMNS = {name: pa.array(values, kind) for name, (kind, values) in VALUES.items()}
HELD = {name: column.to_pylist() for name, column in COLUMNS.items()}
ROWS = 12
# Columns that are not drawn, with the values of `large`.
COLUMNS["of two words"] = COLUMNS["large"]
COLUMNS["parts"] = pa.StructArray.from_arrays([COLUMNS["large"]], ["count"])
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERED = sorted(set(VALUES) - {"flag"})
# Columns that may be compared: of one type, of whole numbers, of floating-point numbers.
PAIRS = [("large", "other"), ("large", "unsigned"), ("small", "large"), ("single", "double"), ("text", "text")]


def with_columns():
    plain = source_of(unit(np.random.default_rng(0), ROWS))
    rows = pa.table({"id": [f"{number:06d}" for number in range(ROWS)], **COLUMNS})
    return type(plain)(plain.info, rows.schema, lambda: iter([(rows, next(iter(plain.read()))[1].repeat(2, 0))]), "it")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build_index(tmp_path_factory.mktemp("filters") / "index", with_columns())


# ---- The oracle: three values, as in SQL. Every filter is a text, and a function of a row's number. ----


def compared(symbol, here, there):
    """As Python compares; NaN is larger than all numbers, and itself, as in LanceDB."""
    if here is None or there is None:
        return None
    if isinstance(here, float):
        here, there = (here != here, 0 if here != here else here), (there != there, 0 if there != there else there)
    return OPERATORS[symbol](here, there)


def written(value):
    if isinstance(value, datetime.date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return repr(value)


def literals(name):
    return st.sampled_from(
        [each for each in HELD[name] if each is not None and each not in (INF, -INF) and each == each]
    )


@st.composite
def comparisons(draw):
    name, symbol = draw(st.sampled_from(ORDERED)), draw(st.sampled_from(sorted(OPERATORS)))
    value = draw(literals(name))
    return f"{name} {symbol} {written(value)}", lambda row: compared(symbol, HELD[name][row], value)


@st.composite
def ranges(draw):
    name = draw(st.sampled_from(ORDERED))
    low, high = draw(literals(name)), draw(literals(name))

    def kept(row):
        return both(compared(">=", HELD[name][row], low), compared("<=", HELD[name][row], high))

    return f"{name} BETWEEN {written(low)} AND {written(high)}", kept


@st.composite
def memberships(draw):
    name, negated = draw(st.sampled_from(ORDERED)), draw(st.booleans())
    values = draw(st.lists(literals(name), min_size=1, max_size=20))

    def kept(row):
        here = HELD[name][row]
        return None if here is None else (here in values) != negated

    return f"{name} {'NOT ' * negated}IN ({', '.join(map(written, values))})", kept


@st.composite
def missing(draw):
    name, negated = draw(st.sampled_from(sorted(VALUES))), draw(st.booleans())
    return f"{name} IS {'NOT ' * negated}NULL", lambda row: (HELD[name][row] is None) != negated


@st.composite
def pairs(draw):
    one, other = draw(st.sampled_from(PAIRS))
    symbol = draw(st.sampled_from(sorted(OPERATORS)))
    return f"{one} {symbol} {other}", lambda row: compared(symbol, HELD[one][row], HELD[other][row])


def both(one, other):
    return False if one is False or other is False else None if one is None or other is None else True


def opposite(value):
    return None if value is None else not value


def joined(parts):
    (one, first), word, (other, second) = parts
    if word == "AND":
        return f"({one}) AND ({other})", lambda row: both(first(row), second(row))
    return f"({one}) OR ({other})", lambda row: opposite(both(opposite(first(row)), opposite(second(row))))


filters = st.recursive(
    st.one_of(comparisons(), ranges(), memberships(), missing(), pairs(), st.just(("flag", HELD["flag"].__getitem__))),
    lambda inner: st.one_of(
        inner.map(lambda part: (f"NOT ({part[0]})", lambda row: opposite(part[1](row)))),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(joined),
    ),
    max_leaves=6,
)


def found(index, where):
    return sorted(int(hit.id) for hit in index.search(unit(np.random.default_rng(0), 1), 99, where=where)[0])


@given(filters)
def test_a_filter_keeps_what_python_keeps(index, drawn):
    where, kept = drawn
    assert found(index, where) == [row for row in range(ROWS) if kept(row) is True], where


@settings(max_examples=15)
@given(filters)
def test_a_deletion_deletes_what_python_keeps(index, drawn):
    where, kept = drawn
    goes = {row for row in range(ROWS) if kept(row) is True}
    assert index.delete(where=where) == len(goes), where
    try:
        assert {int(hit.id) for hit in index.search(unit(np.random.default_rng(0), 1), 99)[0]} == {*range(ROWS)} - goes
    finally:
        if rest := [f"{row:06d}" for row in range(ROWS) if row not in goes]:
            index.delete(rest)
        assert index.add(with_columns()) == ROWS


REFUSED = {
    "single = 1e39": "larger than the numbers of its column",
    "single IN (1e39, 2)": "larger than the numbers of its column",
    "text != 'information' AND single = 1e39": "larger than the numbers of its column",
    "double > 1e999": "larger than the numbers of its column",
    "single > large": "write CAST.large AS DOUBLE",
    "CAST(small AS DOUBLE) < double AND single > large": "write CAST.large AS DOUBLE",
    "double = unsigned": "write CAST.unsigned AS DOUBLE",
    "CAST(large AS DOUBLE) > 5 AND large = double": "write CAST.large AS DOUBLE",
    "coalesce(large, 0) = double": "write CAST.large AS DOUBLE",
    '"of two words" = double': "write CAST.`of two words` AS DOUBLE",
    "parts.count = double": "whole numbers .parts. with",
    "large = 3) OR (true": "is not a filter",
    "small = 256": "is not a filter",
    "large = 9007199254740993.0": "is not a filter",
    "text = 3": "is not a filter",
    "day = 'yesterday'": "is not a filter",
    "not " * 2000 + "flag": "is not a filter",
    "(" * 3000 + "flag" + ")" * 3000: "is not a filter",
}


@pytest.mark.parametrize("where", REFUSED, ids=range(len(REFUSED)))
def test_what_would_be_answered_wrongly_is_refused(index, where):
    with pytest.raises(FilterError, match=REFUSED[where]):
        found(index, where)


def test_what_was_meant_is_right(index):
    """Infinity by name, whole numbers that are cast, numbers as their column holds them, and long filters."""
    assert found(index, "single = CAST('inf' AS FLOAT)") == [3]
    assert found(index, "CAST(small AS DOUBLE) < double") == [0, 4, 5, 8, 9]
    assert found(index, "large::double < double AND double < 1e301") == [2, 8]
    assert found(index, "CAST(coalesce(large, 0) AS DOUBLE) BETWEEN 0 AND 3") == [5, 6, 7, 11]
    assert found(index, '"of two words" = large AND parts.count = 3') == [11]
    assert found(index, "text = 'CAST(nothing AS Float64)' OR text = 'Float64(inf)' OR small = 255") == [1]
    assert found(index, "single = 0.1 AND double = 0.1") == [0]
    assert found(index, " OR ".join(["large = 0"] * 1000)) == [5]
    assert found(index, f"large IN ({', '.join(map(str, range(20_000)))})") == [5, 7, 11]
