"""Days at the ends of the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.build.made_from import touched_days
from lakehouse.build.plan import input_days, neighbours, output_days
from lakehouse.contracts import Input, Landing
from lakehouse.days import days_around, end_of
from lakehouse.read.lake import PinnedLake
from lakehouse.report.states import days_by_table
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import model, put, table

FIRST, LAST = date.min, date.max


def test_a_day_at_an_end_of_the_calendar_has_fewer_beside_it() -> None:
    """Without it, one row of 9999-12-31, which many a source writes for "never", ends what looks at its day."""
    assert days_around(date(2024, 3, 1), 1, 1) == [date(2024, 2, 29), date(2024, 3, 1), date(2024, 3, 2)]
    assert (days_around(FIRST, 2, 1), days_around(LAST, 1, 2)) == ([FIRST, date(1, 1, 2)], [date(9999, 12, 30), LAST])
    assert end_of(date(2024, 2, 28)) == datetime(2024, 2, 29, tzinfo=UTC)
    assert end_of(LAST) == datetime(9999, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize("day", [FIRST, LAST])
def test_rows_of_the_ends_of_the_calendar_do_not_end_what_tells_of_all_tables(lake: LakeFactory, day: date) -> None:
    """Without it, `status` and `report` failed for all tables by one such row of bronze."""
    plain = {"day": (T.DateType(), pa.Field()), "id": (T.StringType(), pa.Field())}
    read = Input("bronze.rows", days_before=3, days_after=2)
    rows = table("bronze.rows", model(**plain), lambda lines: lines, {"lines": Landing("rows", "jsonl", ("id",))})
    seen = table("silver.seen", model(**plain), lambda rows: rows, {"rows": read}, key=("id",))
    made = lake(rows, seen)
    put(made, rows, day, [{"id": "a"}])
    assert day in touched_days(seen, read, day)
    assert neighbours(seen, day) == []
    assert min(input_days(read, FIRST)) == min(output_days(read, FIRST)) == FIRST
    assert set(days_by_table(PinnedLake(made.settings, made.tables), {})) == {"bronze.rows", "silver.seen"}
