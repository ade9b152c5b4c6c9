"""A filter keeps the rows that plain Python keeps, in searches and in deletions, or is refused."""

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
from babelens.search.filters import filter_sql

INF, NAN = math.inf, math.nan
BIG = 2**53
VALUES = {
    "single": [0.1, 0.0, -0.0, INF, -INF, NAN, None, 1 / 3, 3e38, 1.5, -0.1, 16777216.0],
    "double": [0.1, -0.0, 0.0, -INF, INF, NAN, None, 1 / 3, 1e300, 9007199254740992.0, -0.1, 5e-324],
    "half": [0.1, 0.0, -0.0, INF, -INF, NAN, None, 1 / 3, 2.5, 1.5, -0.1, 2048.0],
    "large": [BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63), 0, None, 1, -1, 10**18, 10**18 + 1, 3],
    "other": [BIG, BIG, 0, 2**63 - 1, 1, None, None, 2, -2, 10**18 + 1, 10**18, 3],
    "unsigned": [2**64 - 1, 2**63, BIG + 1, 0, 1, 2, None, 3, 4, 5, 2**53, 7],
    "small": [0, 255, 127, 128, 1, 2, None, 3, 4, 5, 6, 7],
    "text": ["it's", 'a"b', "", "É", "a\\b", "%_", None, "Zürich", "a\nb", "\U0001f600", "''", " a"],
    "long": ["b", 'a"b', "", "e", "a\\b", "_", None, "zürich", "a", "\U0001f601", "''", "a "],
    "day": [datetime.date(1970, 1, 1 + n) if n != 6 else None for n in range(10)]
    + [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "moment": [datetime.datetime(1970, 1, 1, n) if n != 6 else None for n in range(10)]
    + [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(3000, 1, 1)],
    "flag": [True, False, None, True, False, True, None, True, True, False, False, True],
}
TYPES = {
    "single": pa.float32(),
    "double": pa.float64(),
    "half": pa.float16(),
    "large": pa.int64(),
    "other": pa.int64(),
    "unsigned": pa.uint64(),
    "small": pa.uint8(),
    "text": pa.string(),
    "long": pa.large_string(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "flag": pa.bool_(),
}
NUMPY = {"single": np.float32, "double": np.float64, "half": np.float16}
ROWS = 12
COLUMNS = {
    name: pa.array(
        [each if each is None else NUMPY.get(name, lambda value: value)(each) for each in values], TYPES[name]
    )
    for name, values in VALUES.items()
}
HELD = {name: column.to_pylist() for name, column in COLUMNS.items()}
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SCHEMA = pa.schema([("id", pa.string()), *TYPES.items()])


def with_columns(start=0):
    plain = source_of(unit(np.random.default_rng(start), ROWS))
    rows = pa.table({"id": [f"{start + number:06d}" for number in range(ROWS)], **COLUMNS})
    return type(plain)(plain.info, rows.schema, lambda: iter([(rows, next(iter(plain.read()))[1].repeat(2, 0))]), "it")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build_index(tmp_path_factory.mktemp("filters") / "index", with_columns())


# ---- The oracle: three values, as in SQL; every filter is a text and a function of a row's number ----


def held(name, value):
    """A value as its column holds it."""
    return float(NUMPY[name](value)) if name in NUMPY else value


def compared(name, symbol, value):
    def kept(row):
        here = HELD[name][row]
        return None if here is None else OPERATORS[symbol](here, value)

    return kept


def written(value):
    if isinstance(value, datetime.date):
        return repr(value.isoformat())
    return repr(value)


def literals(name):
    finite = [each for each in VALUES[name] if each is not None and each not in (INF, -INF) and each == each]
    return st.sampled_from(finite)


names = st.sampled_from(sorted(VALUES))


@st.composite
def comparisons(draw):
    name, symbol = draw(names), draw(st.sampled_from(sorted(OPERATORS)))
    value = draw(literals(name))
    if draw(st.booleans()):
        return f"{name} {symbol} {written(value)}", compared(name, symbol, held(name, value))
    flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(symbol, symbol)
    return f"{written(value)} {flipped} {name}", compared(name, symbol, held(name, value))


@st.composite
def ranges(draw):
    name = draw(names)
    low, high = draw(literals(name)), draw(literals(name))
    one, other = compared(name, ">=", held(name, low)), compared(name, "<", held(name, high))
    return f"{written(low)} <= {name} < {written(high)}", lambda row: both(one(row), other(row))


@st.composite
def memberships(draw):
    name, negated = draw(names), draw(st.booleans())
    values = draw(st.lists(literals(name), min_size=1, max_size=30))
    own = [held(name, value) for value in values]

    def kept(row):
        here = HELD[name][row]
        return None if here is None else (here in own) != negated

    return f"{name} {'not in' if negated else 'in'} [{', '.join(map(written, values))}]", kept


@st.composite
def missing(draw):
    name, negated = draw(names), draw(st.booleans())
    return f"{name} is {'not ' * negated}None", lambda row: (HELD[name][row] is None) != negated


@st.composite
def pairs(draw):
    one, other = draw(st.sampled_from([("large", "other"), ("other", "large"), ("text", "text")]))
    symbol = draw(st.sampled_from(sorted(OPERATORS)))

    def kept(row):
        first, second = HELD[one][row], HELD[other][row]
        return None if first is None or second is None else OPERATORS[symbol](first, second)

    return f"{one} {symbol} {other}", kept


def both(one, other):
    return False if one is False or other is False else None if one is None or other is None else True


def opposite(value):
    return None if value is None else not value


def joined(parts):
    (one, first), word, (other, second) = parts
    if word == "and":
        return f"({one}) and ({other})", lambda row: both(first(row), second(row))
    return f"({one}) or ({other})", lambda row: opposite(both(opposite(first(row)), opposite(second(row))))


filters = st.recursive(
    st.one_of(
        comparisons(), ranges(), memberships(), missing(), pairs(), st.just(("flag", lambda row: HELD["flag"][row]))
    ),
    lambda inner: st.one_of(
        inner.map(lambda part: (f"not ({part[0]})", lambda row: opposite(part[1](row)))),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(joined),
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


@given(
    names,
    st.sampled_from([*OPERATORS, "in", "is"]),
    st.one_of(names, st.integers(), st.floats(), st.text(), st.booleans(), st.dates(), st.datetimes(), st.none()),
)
def test_any_other_value_is_refused_or_right(index, name, symbol, value):
    """Values of every type and size: an answer is that of Python, with the value in the type of the column."""
    other = value if isinstance(value, str) and value in VALUES else None
    text = other or (f"[{written(value)}]" if symbol == "in" else written(value))
    try:
        kept = found(index, f"{name} {symbol} {text}")
    except FilterError:
        return
    if symbol == "is":
        assert value is None and kept == [row for row in range(ROWS) if HELD[name][row] is None]
        return
    if other:
        right = [(here, there) for here, there in zip(HELD[name], HELD[other], strict=True)]
    else:
        if isinstance(HELD[name][0], str) and isinstance(value, datetime.date):
            value = value.isoformat()
        elif isinstance(HELD[name][0], datetime.date) and isinstance(value, str):
            value = type(HELD[name][0]).fromisoformat(value)
        elif type(HELD[name][0]) is datetime.datetime and type(value) is datetime.date:
            value = datetime.datetime.combine(value, datetime.time())
        right = [(here, held(name, value)) for here in HELD[name]]
    compare = OPERATORS["==" if symbol == "in" else symbol]
    assert kept == [
        row
        for row, (here, there) in enumerate(right)
        if here is not None and there is not None and compare(here, there)
    ]


KEPT = {
    "not single == 0.1": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "single not in [0.1]": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "double in [0, 7]": [1, 2],
    "double < 0": [3, 10],
    "not (double > 0)": [1, 2, 3, 5, 10],
    "large == 9007199254740993": [1],
    "large > 1e6": [0, 1, 3, 9, 10],
    "large == 9007199254740992.0": [0],
    "unsigned >= 18446744073709551615": [0],
    "moment == '1970-01-01T02:00'": [2],
    "day in ['1970-01-02']": [1],
    "large == other": [0, 3, 11],
}


@pytest.mark.parametrize("where", KEPT)
def test_numbers_and_dates_are_compared_by_their_values(where, index):
    assert found(index, where) == KEPT[where]


REFUSED = {
    "large > 1e999": "whole numbers",
    "large > 2.5": "whole numbers",
    "small == 256": "whole numbers from 0 to 255",
    "small in [-1]": "whole numbers from 0 to 255",
    "single == 1e39": "too small for it",
    "single == 16777217": "too coarse",
    "double > 1" + 400 * "0": "double",
    "double == True": "another type",
    "double > single": "of one type",
    "double == double": "of one type",
    "large < unsigned": "of one type",
    "day < moment": "of one type",
    "text == 1": "another type",
    "text == '\\ud83d'": "surrogates",
    "text == b'a'": "a number, a text",
    "text == -'a'": "a number, a text",
    "moment == '1970-01-01T00:00+02:00'": "no time zone",
    "day in ['yesterday']": "yesterday",
    " or ".join(["large == 0"] * 20_000): "names columns 20,000 times",
    "not " * 2000 + "flag": "nested too deeply|is not a filter",
    "".join(f"{'and' if n % 2 else 'or'}".join(["(flag ", " "]) for n in range(60)) + "flag" + ")" * 60: "too deeply",
}


@pytest.mark.parametrize("where", REFUSED, ids=[f"{number}-{where[:20]}" for number, where in enumerate(REFUSED)])
def test_what_no_column_can_hold_is_refused(where):
    with pytest.raises(FilterError, match=REFUSED[where]):
        filter_sql(where, SCHEMA)


def test_long_filters(index):
    for word in ("or", "and"):
        assert found(index, f" {word} ".join(["large == 0"] * 1000)) == [5]  # which a program may write
    assert found(index, "not " * 101 + "flag") == [1, 4, 9, 10]
    assert found(index, f"large in {[*range(20_000)]}") == [5, 7, 11]


def test_times_of_a_zone(tmp_path):
    plain = source_of(unit(np.random.default_rng(0), 4))
    for zone in ("UTC", "Europe/Berlin"):
        for unit_of_time in ("s", "ns"):
            at = pa.array([0, 3600, None, 7200], pa.timestamp("s")).cast(pa.timestamp(unit_of_time))
            rows = pa.table({"id": ["0", "1", "2", "3"], "at": at.cast(pa.timestamp(unit_of_time, zone))})
            vectors = np.concatenate([each for _, each in plain.read()])
            source = type(plain)(
                plain.info, rows.schema, lambda rows=rows, vectors=vectors: iter([(rows, vectors)]), "it"
            )
            index = build_index(tmp_path / f"{zone[:3]}{unit_of_time}", source)
            assert found(index, "at == '1970-01-01T01:00Z'") == [1]
            assert found(index, "at <= '1970-01-01T02:00+01:00'") == [0, 1]
            assert found(index, "not at == '1970-01-01T01:00'") == [0, 3]
