"""Times that Python has not are texts; all else is what Arrow makes of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from lakehouse.store.cells import cells, column, rows

MICROS, DAYS = 253_402_300_800_000_000, 2_932_897  # the first moment, and day, of the year 10000
MOMENT, AT = pa.timestamp("us", "UTC"), datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (MOMENT, [0, MICROS, None], [AT, "10000-01-01 00:00:00.000000Z", None]),
        (pa.timestamp("us"), [-62_167_219_200_000_000], ["0000-01-01 00:00:00.000000"]),
        (pa.date32(), [DAYS, 0], ["10000-01-01", date(1970, 1, 1)]),
        (pa.list_(MOMENT), [[0], [0, MICROS]], [[AT], ["1970-01-01 00:00:00.000000Z", "10000-01-01 00:00:00.000000Z"]]),
        (pa.struct([("at", pa.date32()), ("n", pa.int32())]), [{"at": DAYS, "n": 1}], [{"at": "10000-01-01", "n": 1}]),
        (pa.map_(pa.string(), pa.date32()), [[("a", DAYS)]], [[("a", "10000-01-01")]]),
        (pa.decimal128(4, 2), [None], [None]),
    ],
)
def test_one_such_time_hides_no_other(kind: pa.DataType, values: list[Any], wanted: list[Any]) -> None:
    """Without it, one row that was set aside for its time would end each look at the rows beside it."""
    assert cells(pa.array(values, kind)) == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (MOMENT, [0, MICROS, None, MICROS * 3 + 123_456, -62_135_596_800_000_001]),
        (pa.timestamp("us"), [-62_167_219_200_000_000, -62_200_000_000_000_001]),
        (pa.date32(), [DAYS, 0, None, DAYS * 30, -719_163, -900_000]),
        (pa.list_(pa.date32()), [[0], None]),
    ],
)
def test_what_became_text_becomes_the_same_time_again(kind: pa.DataType, values: list[Any]) -> None:
    """Without it, a row that has one such time could not be computed again: `explain-row` ended with an error."""
    made = pa.array(values, kind)
    assert column(cells(made), kind).equals(made)


def test_rows() -> None:
    """Without it, rows would have other columns, or another order, than their table."""
    table = pa.table({"n": [1, 2], "day": pa.chunked_array([[0], [DAYS]], pa.date32())})
    assert rows(table) == [{"n": 1, "day": date(1970, 1, 1)}, {"n": 2, "day": "10000-01-01"}]
    assert rows(table.slice(0, 0)) == []
