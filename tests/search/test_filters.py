"""Filters beside odd values: every engine keeps the same rows, or says why a filter cannot be used."""

import numpy as np
import pyarrow as pa
import pytest
from index_vectors import source_of, unit

from babelens.configuration.errors import FilterError
from babelens.search import build_index

COLUMNS = {
    "bytes": pa.array([0, 20_000_001, None, 2**53 + 1, -(2**63), 2**63 - 1]),
    "small": pa.array([0, 1, None, 3, 127, 255], pa.uint8()),
    "score": pa.array([0.5, float("nan"), None, -1.0, 2.0, float("inf")]),
    "single": pa.array([0.1, float("nan"), None, 3, 1e30, -1], pa.float32()),
    "day": pa.array([0, 1, None, 3, 4, 5], pa.int32()).cast(pa.date32()),
    "hour": pa.array([0, 3600, None, 7200, 1, 2], pa.timestamp("s")),
    "text": pa.array(["it's", "a\\b", None, "", "%_", "é"]),
}
KEPT = {
    "bytes > 1e6": [1, 3, 5],
    "bytes > 0.5": [1, 3, 5],
    "bytes >= 20000000.5": [1, 3, 5],
    "bytes < 0.5": [0, 4],
    "bytes <= -0.5": [4],
    "bytes == 9007199254740993": [3],
    "bytes == 9007199254740992.0": [],
    "bytes == 20000001.0": [1],
    "bytes == 1.5": [],
    "not (bytes == 1.5)": [0, 1, 3, 4, 5],
    "bytes != 1.5": [0, 1, 3, 4, 5],
    "bytes in [0.0, 1.5, 1e40]": [0],
    "bytes in [1.5]": [],
    "bytes not in [1.5]": [0, 1, 3, 4, 5],
    "bytes > 99999999999999999999": [],
    "bytes < 99999999999999999999": [0, 1, 3, 4, 5],
    "not (bytes > 1e300)": [0, 1, 3, 4, 5],
    "bytes > -99999999999999999999": [0, 1, 3, 4, 5],
    "bytes >= 9223372036854775807": [5],
    "bytes <= -9223372036854775808": [4],
    "small < 300": [0, 1, 3, 4, 5],
    "small == -1": [],
    "small > -1": [0, 1, 3, 4, 5],
    "small in [300, 3]": [3],
    "score > 0": [0, 4, 5],
    "not (score > 0)": [1, 3],
    "score < 1e300": [0, 3, 4],
    "score == score": [0, 3, 4, 5],
    "score != 2": [0, 1, 3, 5],
    "single == 0.1": [0],
    "single in [0.1]": [0],
    "single > 99999999999999999999": [4],
    "day in ['1970-01-02', '1970-01-04']": [1, 3],
    "day not in ['1970-01-02']": [0, 3, 4, 5],
    "hour in ['1970-01-01 01:00', '1970-01-01T02:00']": [1, 3],
    """text in ["it's", '']""": [0, 3],
    "text == 'a\\\\b' or text == '%_'": [1, 4],
}


@pytest.mark.parametrize("engine", ["exact", "lance"])
def test_numbers_dates_and_texts_are_compared_by_their_values(engine, tmp_path):
    random = np.random.default_rng(0)
    index = build_index(tmp_path / "index", with_columns(unit(random, 6)), engine)

    def kept(where):
        return sorted(int(hit.id[:6]) for hit in index.search(unit(random, 1), 9, where=where)[0])

    assert {where: kept(where) for where in KEPT} == KEPT
    for joined in (" or ", " and "):
        assert kept(joined.join(["bytes == 0"] * 1000)) == [0]  # which a program may write


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("bytes > 1e999", "a number that is finite"),
        ("bytes > -1e999", "a number that is finite"),
        ("score > 1" + 400 * "0", r"no value of score \(double\) can be as large"),
        ("text == 99999999999999999999", r"no value of text \(string\) can be as large"),
        ("text == '\\ud83d'", "a text without half characters"),
        pytest.param(" or ".join(["bytes == 0"] * 20_000), "names columns 20,000 times", id="long"),
        ("day in ['yesterday']", "such as '2026-01-31'"),
    ],
)
def test_values_that_no_column_can_have(where, why, tmp_path):
    random = np.random.default_rng(0)
    index = build_index(tmp_path / "index", with_columns(unit(random, 6)))
    with pytest.raises(FilterError, match=why):
        index.search(unit(random, 1), where=where)


def with_columns(vectors):
    plain = source_of(vectors)
    rows = pa.table({"id": [f"{number:06d}.jpg" for number in range(len(vectors))], **COLUMNS})
    return type(plain)(plain.info, rows.schema, lambda: iter([(rows, vectors)]), plain.called)
