"""The checks between stage and publish, on figures alone: what blocks a day, what only warns, and what is not claimed."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.checks.anomalies import volume
from lakehouse.checks.audit import audit_day, blocking_checks, check_names
from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.checks.profile import Numbers, Profile
from lakehouse.contracts import Input, Landing, Table, Volume
from lakehouse_tests.fixtures.making import model, table

MONDAY = date(2026, 3, 30)


def weeks_ago(n: int) -> date:
    """The same weekday, n weeks before."""
    return MONDAY - timedelta(weeks=n)


def sales(**policy: Any) -> Table:
    """A table with one required and one nullable column."""
    contract = model(
        id=(T.StringType(), pa.Field()), day=(T.DateType(), pa.Field()), note=(T.StringType(), pa.Field(nullable=True))
    )
    return table("silver.sales", contract, lambda rows: rows, {"rows": Input("bronze.rows")}, **policy)


def outcome(made: Table, check: str, history: dict[date, int] | None = None, **figures: Any) -> Outcome:
    """One check on a day with these figures."""
    (found,) = [o for o in audit_day(made, DayMetrics(MONDAY, **figures), history or {}) if o.check == check]
    return found


def test_checks_follow_from_the_contract() -> None:
    """Without it, a check could run that nobody has declared in Dagster, or be declared and never run."""
    tables = [
        sales(),
        sales(key=("id",)),
        sales(key=("id",), keep_first_by=("_source_row",), conserves_rows=True, volume=Volume()),
        table("bronze.raw", sales().model, lambda lines: lines, {"lines": Landing("raw", "csv", ("id",))}),
    ]
    names = [list(check_names(made)) for made in tables]
    assert names == [
        ["row_count", "null_rates", "row_rules"],
        ["row_count", "null_rates", "row_rules", "unique_key"],
        ["row_count", "null_rates", "row_rules", "unique_key", "row_conservation", "volume"],
        ["row_count", "null_rates", "row_rules", "row_conservation", "source_readable", "schema_drift"],
    ]
    for made, each in zip(tables, names, strict=True):
        assert [o.check for o in audit_day(made, DayMetrics(MONDAY), {})] == each


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ({"rows": 10}, True),
        ({"rows": 9}, False),
        ({"rows": 20}, True),
        ({"rows": 21}, False),
        ({"rows": 0, "quarantined": 3}, False),
        ({"rows": 0, "duplicates": 1}, False),
        ({"rows": 0, "rows_in": 5}, False),
        ({"rows": 0, "rows_in": 0}, True),  # a day on which the shop was closed
        ({}, True),
    ],
)
def test_row_count_bounds_hold_where_there_is_input(figures: dict[str, Any], passed: bool) -> None:
    """Without it, a source that sends half a file would be published, or a closed Sunday would fail for ever."""
    assert outcome(sales(min_rows=10, max_rows=20), "row_count", **figures).passed is passed


def test_null_rates_have_bounds_for_nullable_and_none_for_required_columns() -> None:
    """Without it, a join that stopped matching would leave a column empty, and every check green."""
    made = sales(max_null_rate={"note": 0.25})
    assert outcome(made, "null_rates", rows=400, nulls={"note": 100}).passed
    bad = outcome(made, "null_rates", rows=400, nulls={"note": 200, "id": 1})
    assert not bad.passed
    assert "note is null in 50.0% of rows; at most 25.0% may be" in bad.message
    assert "id is null in 0.2% of rows; at most 0.0% may be" in bad.message
    assert bad.values["null_rate/note"] == 0.5
    assert outcome(made, "null_rates", rows=0, quarantined=5).passed
    assert outcome(sales(), "null_rates", rows=4, nulls={"note": 4}).passed


@pytest.mark.parametrize(
    ("nulls", "rows", "passed"),
    [(1, 1, True), (4, 4, False), (126, 400, False), (125, 400, True), (2700, 10_000, False), (2600, 10_000, True)],
)
def test_shares_of_few_rows_say_little(nulls: int, rows: int, passed: bool) -> None:
    """Without it, one guest on a day of one order would block the day; or chance would be the excuse of thousands."""
    made = sales(max_null_rate={"note": 0.25})
    assert outcome(made, "null_rates", rows=rows, nulls={"note": nulls}).passed is passed
    assert not outcome(made, "null_rates", rows=rows, nulls={"id": 1}).passed, "a bound of 0 has no tolerance"


@pytest.mark.parametrize(("late", "passed"), [(0, True), (10, True), (11, False)])
def test_a_share_of_sums_warns_and_blocks_nothing(late: int, passed: bool) -> None:
    """Without it, nobody would hear that many events came after the numbers of their hour were taken for final."""
    number = {name: (T.LongType(), pa.Field()) for name in ("events", "corrections")}
    contract = model(day=(T.DateType(), pa.Field()), **number)
    made = table(
        "gold.hours", contract, lambda rows: rows, {"rows": Input("bronze.rows")},
        max_shares={"corrections": ("events", 0.01)},
    )  # fmt: skip
    assert set(number) <= set(made.profiled)
    assert "shares" not in blocking_checks(made)
    profile = Profile(numbers={"events": Numbers(total=Decimal(1000)), "corrections": Numbers(total=Decimal(late))})
    found = outcome(made, "shares", rows=3, profile=profile)
    assert (found.passed, found.blocking) == (passed, False)
    assert f"corrections {late} of events 1000" in found.message
    assert outcome(made, "shares").passed


def test_the_share_of_quarantined_rows_is_of_those_judged() -> None:
    """Without it, a day of rubbish would be published as the few rows that pass, or repeats would hide its share."""
    made = sales(max_quarantined=0.1)
    assert outcome(made, "row_rules", rows=900, quarantined=100).passed
    failures = {"id_present": 90, "x": 130}
    bad = outcome(made, "row_rules", rows=870, quarantined=130, duplicates=10_000, failures=failures)
    assert not bad.passed
    assert bad.message == "130 of 1000 rows quarantined (13.00%; at most 10%): x 130, id_present 90"
    assert outcome(made, "row_rules").passed


def test_a_repeated_key_fails_only_where_no_first_is_kept() -> None:
    """Without it, a join that multiplies rows would be published, or a resent file would block its day."""
    assert not outcome(sales(key=("id",)), "unique_key", rows=5, duplicates=1).passed
    assert outcome(sales(key=("id",)), "unique_key", rows=5).passed
    assert outcome(sales(key=("id",), keep_first_by=("_source_row",)), "unique_key", rows=5, duplicates=9).passed


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ({"rows_in": 10, "rows": 7, "quarantined": 2, "duplicates": 1}, True),
        ({"rows_in": 10, "rows": 7, "quarantined": 2}, False),
        ({"rows_in": 9, "rows": 10}, False),
        ({"rows_in": 0}, True),
        ({"rows_in": None, "rows": 1}, False),
    ],
)
def test_rows_in_are_rows_out(figures: dict[str, Any], passed: bool) -> None:
    """Without it, a filter or an inner join in a transform would lose rows that nobody misses."""
    found = outcome(sales(conserves_rows=True), "row_conservation", **figures)
    assert found.passed is passed
    assert found.blocking


def test_an_unreadable_source_fails_by_its_file() -> None:
    """Without it, a day with one of two files cut off would be published as if it were whole."""
    made = table("bronze.raw", sales().model, lambda lines: lines, {"lines": Landing("raw", "csv", ("id",))})
    bad = outcome(made, "source_readable", problems=["a.csv ends early"], rows_in=1, quarantined=1)
    assert (bad.passed, bad.message) == (False, "a.csv ends early")
    assert outcome(made, "source_readable").passed


STEADY = {weeks_ago(n): rows for n, rows in enumerate([100, 110, 95, 105, 100], start=1)}


@pytest.mark.parametrize(
    ("rows", "passed", "blocking"),
    [
        (100, True, False),
        (115, True, False),
        (25, False, False),  # at the lower bound: published, but a warning
        (24, False, True),
        (10, False, True),  # a tenth of the usual rows
        (0, False, True),
        (390, False, False),
        (400, False, False),
        (401, False, True),
    ],
)
def test_volume_blocks_beyond_its_bounds_and_warns_within(rows: int, passed: bool, blocking: bool) -> None:
    """Without it, a tenth of a day would go live unnoticed, or every lively day would be blocked."""
    found = volume(Volume(), DayMetrics(MONDAY, rows=rows, quarantined=1), STEADY)
    assert (found.passed, found.blocking) == (passed, blocking)
    assert found.values["usual_rows"] == 100


def test_volume_claims_nothing_without_enough_history() -> None:
    """Without it, the second day of a new table would be judged by the first."""
    few = dict(list(STEADY.items())[:3])
    found = volume(Volume(), DayMetrics(MONDAY, rows=1), few)
    assert (found.passed, found.message) == (True, "not enough history: 3 of 4 same weekdays with rows")
    closed = {**few, weeks_ago(4): 0, weeks_ago(5): 0}
    assert volume(Volume(), DayMetrics(MONDAY, rows=1), closed).passed


def test_volume_compares_with_the_same_weekday_before() -> None:
    """Without it, quiet Sundays would be blocked by busy Mondays, and an old day be judged by what came after it."""
    sundays = {day - timedelta(days=1): rows // 10 for day, rows in STEADY.items()}
    later = {weeks_ago(-n): 5000 for n in range(1, 9)}
    history = {**STEADY, **sundays, **later}
    sunday = DayMetrics(MONDAY - timedelta(days=1), rows=10)
    assert volume(Volume(), sunday, history).passed
    assert volume(Volume(), DayMetrics(MONDAY, rows=100), history).passed
    assert not volume(Volume(), DayMetrics(MONDAY, rows=10), history).passed


def test_volume_uses_the_last_weeks_and_bears_one_odd_one() -> None:
    """Without it, last year's size would set the bounds, or one promotion would hide a lost day."""
    grown = {weeks_ago(n): 10 for n in range(9, 30)} | {weeks_ago(n): 1000 for n in range(1, 9)}
    assert volume(Volume(), DayMetrics(MONDAY, rows=1000), grown).passed
    assert not volume(Volume(), DayMetrics(MONDAY, rows=10), grown).passed
    odd = {**STEADY, weeks_ago(1): 100_000}
    assert volume(Volume(), DayMetrics(MONDAY, rows=100), odd).passed
    assert not volume(Volume(), DayMetrics(MONDAY, rows=10), odd).passed


def test_a_day_without_any_rows_is_not_held_back() -> None:
    """Without it, a public holiday would block the days that read it."""
    assert not volume(Volume(), DayMetrics(MONDAY), STEADY).blocking


def test_bad_rows_refuse_no_day_that_the_stream_has_not_come_to() -> None:
    """Without it, rows without a time, which are of the day they arrived on, would refuse it before any good one came."""
    bad = DayMetrics(MONDAY, quarantined=35, failures={"time_present": 35})
    for reached in (True, False):
        (found,) = [o for o in audit_day(sales(), bad, {}, reached=reached) if o.check == "row_rules"]
        assert found.passed is not reached
        assert ("the stream has not come to this day" in found.message) is not reached
