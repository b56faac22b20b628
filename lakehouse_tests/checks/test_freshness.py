"""Freshness by the data's own time: what an old rebuild does not fix, and what the error budget counts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.checks.freshness import FreshnessState, judge
from lakehouse.contracts import Input, Table
from lakehouse.records.day_record import DayRecord
from lakehouse_tests.fixtures.making import model, table

TODAY = date(2026, 3, 30)  # a Monday
NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
YESTERDAY = TODAY - timedelta(days=1)


def sales(**policy: Any) -> Table:
    """Due twelve hours after the end of a day."""
    columns = {"id": (T.StringType(), pa.Field()), "day": (T.DateType(), pa.Field())}
    given = {"fresh_within": timedelta(hours=12), **policy}
    return table("silver.sales", model(**columns), lambda rows: rows, {"rows": Input("bronze.rows")}, **given)


def usual(days: int = 60, last: date = YESTERDAY) -> list[DayRecord]:
    """A thousand rows a day, each published three hours after its end."""
    first = last - timedelta(days=days - 1)
    return [record(first + timedelta(days=n), hours=3, version=n + 1) for n in range(days)]


def record(day: date, *, hours: float, rows: int = 1000, version: int = 1000) -> DayRecord:
    """One publication, some hours after the end of its day."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1, hours=hours)
    return DayRecord("silver.sales", day, version, at, "run", "v1", "publish", {}, {"rows": rows})


def judged(kept: list[DayRecord], now: datetime = NOON, **policy: Any) -> FreshnessState:
    """The freshness of a table with these records."""
    return judge(sales(**policy), sorted(kept, key=lambda each: each.version), now)


def test_a_day_is_due_when_its_time_is_up() -> None:
    """Without it, a table would be called stale at midnight, or fresh for as long as anything runs."""
    assert judged(usual()).due == YESTERDAY
    assert judged(usual(), NOON - timedelta(minutes=1)).due == YESTERDAY - timedelta(days=1)
    found = judged(usual())
    assert (found.met, found.newest, found.missed, found.budget_left) == (True, YESTERDAY, [], 1.0)
    assert found.behind == timedelta(hours=12)


def test_building_an_old_day_makes_nothing_fresh() -> None:
    """Without it, a backfill of last year would turn red to green, which Dagster's own policy does."""
    stale = usual(last=TODAY - timedelta(days=4))
    assert not judged(stale).met
    again = DayRecord("silver.sales", date(2026, 2, 2), 999, NOON, "run", "v1", "publish", {}, {"rows": 1000})
    found = judged([*stale, again])
    assert (found.met, found.newest) == (False, TODAY - timedelta(days=4))
    assert "2026-03-29, due 12 h after its end, is not complete" in found.text()


def test_a_day_with_a_third_of_its_rows_is_not_complete() -> None:
    """Without it, the first file of a day would make the day fresh."""
    part = [*usual(last=TODAY - timedelta(days=2)), record(YESTERDAY, hours=1, rows=300)]
    found = judged(part)
    assert (found.met, found.days[-2].completeness) == (False, 0.3)
    assert "not complete (30% of the usual rows)" in found.text()
    whole = [*part, record(YESTERDAY, hours=5, version=1001)]
    assert judged(whole).met
    assert judged(part, known_events={YESTERDAY: "closed"}).met


def test_the_budget_counts_days_that_were_late_even_if_they_came() -> None:
    """Without it, a team that is late each morning would look at green by noon."""
    late = [TODAY - timedelta(days=n) for n in (3, 5)]
    kept = [each for each in usual() if each.day not in late]
    kept += [record(day, hours=20, version=500 + n) for n, day in enumerate(late)]
    found = judged(kept)
    assert (found.met, found.missed, len(found.judged)) == (True, sorted(late), 30)
    assert found.budget_left == pytest.approx(1 - 2 / 1.5)
    assert judged(kept, fresh_budget=0.2).budget_left == pytest.approx(1 - 2 / 6)


def test_days_before_the_table_was_there_are_not_counted() -> None:
    """Without it, the backfill of a new table would spend its budget for a month."""
    backfilled = [
        DayRecord("silver.sales", each.day, each.version, NOON - timedelta(hours=9), "run", "v1", "publish", {}, {"rows": 1000})
        for each in usual()
    ]  # fmt: skip
    found = judged(backfilled)
    assert (found.met, len(found.judged), found.missed) == (True, 0, [])
    nothing = judged([])
    assert (nothing.met, nothing.newest, nothing.behind) == (False, None, None)


def test_a_table_owes_no_day_before_its_first() -> None:
    """Without it, a stream would be an error, and an alert, until its first whole day has had its time."""
    found = judged([record(TODAY, hours=-13)])
    assert (found.met, found.judged) == (True, [])
    assert f"{YESTERDAY}, due 12 h after its end, is before its first day" in found.text()
    tomorrow = judged([record(TODAY, hours=-13)], NOON + timedelta(days=1))
    assert (tomorrow.due, tomorrow.met) == (TODAY, True)
    assert not judged([record(TODAY, hours=-13)], NOON + timedelta(days=2)).met
    assert not judged([]).met, "what was never built is not fresh"
    second = judged([record(YESTERDAY, hours=3)], NOON - timedelta(hours=1))
    assert (second.newest, second.standing) == (YESTERDAY, "before its first day")


def test_what_comes_once_a_week_is_in_time_between() -> None:
    """Without it, what lands once a week, or a month, would be an error on all other days."""
    last = TODAY - timedelta(days=5)
    weekly = [record(last - timedelta(days=7 * n), hours=3, version=90 - n) for n in range(12)]
    empty = [record(YESTERDAY - timedelta(days=n), hours=1, rows=0, version=200 + n) for n in range(3)]
    every: dict[str, Any] = {"fresh_every": timedelta(days=7)}
    found = judged([*weekly, *empty], **every)
    assert (found.met, found.missed, len(found.judged), found.newest) == (True, [], 30, YESTERDAY)
    assert judged(weekly, **every).standing == "met by rows of days before"
    assert judged(weekly, NOON + timedelta(days=2), **every).met
    assert not judged(weekly, NOON + timedelta(days=3), **every).met
    missing = judged([each for each in weekly if each.day != last], **every)
    assert (missing.met, missing.missed) == (False, [last + timedelta(days=n) for n in range(5)])
    late = record(last, hours=24 * 3, version=300)
    assert judged([*weekly[1:], late], **every).missed == [last + timedelta(days=n) for n in range(3)]
    assert not judged(weekly).met
    assert sales(**every).freshness.age == timedelta(days=6, hours=12), "of Dagster's policy"


def test_a_day_that_is_not_over_is_not_complete() -> None:
    """Without it, a table that a stream adds to would be complete up to today in the morning."""
    found = judged([*usual(), record(TODAY, hours=-13)])
    assert (found.newest, found.behind) == (YESTERDAY, timedelta(hours=12))
    assert judged([record(TODAY, hours=-13)]).newest is None


def test_a_day_of_which_messages_wait_is_not_complete() -> None:
    """Without it, a stream that is behind would call complete what `status` calls open; what was in time stays so."""
    earlier = TODAY - timedelta(days=5)
    found = judge(sales(), usual(), NOON, waits_from=earlier)
    assert (found.met, found.newest, found.missed) == (False, earlier - timedelta(days=1), [])
    assert (
        f"{YESTERDAY}, due 12 h after its end, is open, messages wait (100% of the usual rows); 0 of 30" in found.text()
    )
    assert judge(sales(), usual(), NOON, waits_from=TODAY).met, "all messages of yesterday were taken"


def test_a_lake_that_has_ended_is_judged_as_of_its_last_day() -> None:
    """Without it, one click turns every table of a lake of last decade red, and alerts everybody."""
    years_later = NOON + timedelta(days=4000)
    assert not judge(sales(), usual(), years_later).met
    ended = judge(sales(), usual(), years_later, YESTERDAY)
    assert (ended.met, ended.due, ended.newest) == (True, YESTERDAY, YESTERDAY)
    assert ended.behind == timedelta(hours=12)
    lacking = judge(sales(), usual(), years_later, TODAY)
    assert (lacking.met, lacking.due) == (False, TODAY), "a last day that was never built is still told"
    assert judge(sales(), usual(), NOON, TODAY + timedelta(days=9)) == judged(usual())


def test_a_lake_that_has_just_begun_owes_nothing() -> None:
    """Without it, each table of a new lake is not fresh for its first days, over days that the lake does not have."""
    for first, met in ((TODAY, True), (YESTERDAY, False), (None, False)):
        found = judge(sales(), [], NOON, first_day=first)
        assert (found.due, found.met) == (YESTERDAY, met)
