"""Drift against the same weekdays: what is seen, what is left alone, and what known events excuse."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pytest
from pyspark.sql import types as T

from lakehouse.checks.anomalies import baseline, drifts, volume
from lakehouse.checks.metrics import DayMetrics, Outcome
from lakehouse.checks.profile import Moments, Numbers, Profile
from lakehouse.contracts import Anomalies, Input, Table, Volume
from lakehouse_tests.fixtures.making import model, table

MONDAY = date(2026, 3, 30)
TEXT = T.StringType()


def sales(bounds: Anomalies | None = None, **policy: Any) -> Table:
    """A table whose amounts and currencies are watched."""
    columns = {
        "id": (TEXT, pa.Field()),
        "day": (T.DateType(), pa.Field()),
        "user": (TEXT, pa.Field(nullable=True)),
        "amount": (T.DecimalType(18, 2), pa.Field()),
        "currency": (TEXT, pa.Field(nullable=True)),
    }
    made = {"profile": ("amount", "currency"), "anomalies": bounds or Anomalies(), **policy}
    return table("silver.sales", model(**columns), lambda rows: rows, {"rows": Input("bronze.rows")}, **made)


def day_of(
    day: date, *, rows: int = 1000, null_users: int = 100, log_mean: float = 3.0, dollars: int = 100
) -> DayMetrics:
    """A day's figures: by default the usual ones."""
    amount = Numbers(rows, Decimal(20 * rows), 1.0, 900.0, Moments(20.0, 400.0 * rows), Moments(log_mean, 0.5 * rows))
    mix = Counter({"GBP": rows - dollars, "USD": dollars})
    profile = Profile({"amount": amount}, {"currency": mix})
    return DayMetrics(day, rows=rows, nulls={"user": null_users}, profile=profile)


def history(weeks: int = 8) -> dict[date, dict[str, Any]]:
    """Usual days with small wobbles, of every weekday."""
    days = [MONDAY - timedelta(days=n) for n in range(1, 7 * weeks + 1)]
    return {
        day: day_of(
            day, null_users=100 + n % 7, log_mean=3.0 + 0.01 * (n % 5), dollars=100 + 3 * (n % 4)
        ).as_json()
        for n, day in enumerate(days)
    }  # fmt: skip


def failed(made: Table, m: DayMetrics, before: dict[date, Any] | None = None) -> dict[str, Outcome]:
    """The drift checks that fail on a day."""
    return {o.check: o for o in drifts(made, m, history() if before is None else before) if not o.passed}


def test_a_usual_day_raises_no_alarm() -> None:
    """Without it, people would learn to look away."""
    assert failed(sales(), day_of(MONDAY, null_users=112, log_mean=3.03, dollars=115)) == {}


@pytest.mark.parametrize(
    ("fault", "check", "text"),
    [
        ({"null_users": 400}, "null_drift", "user is null in 40.0% of rows, usually in 10."),
        ({"null_users": 0}, "null_drift", "user is null in 0.0% of rows"),
        ({"log_mean": 3.0 + 4.6}, "mean_shift", "values of amount have shifted"),
        ({"dollars": 500}, "category_mix", "have another currency than usual, most of all "),
    ],
)
def test_each_drift_is_seen_by_its_own_check(fault: dict[str, Any], check: str, text: str) -> None:
    """Without it, a unit change or a broken join would pass every row rule and count."""
    found = failed(sales(), day_of(MONDAY, **fault))
    assert list(found) == [check]
    assert text in found[check].message
    assert not found[check].blocking


def test_the_contract_decides_whether_drift_blocks_and_from_where() -> None:
    """Without it, sensitivity would be a constant of this project."""
    day = day_of(MONDAY, null_users=400)
    assert failed(sales(Anomalies(block=True)), day)["null_drift"].blocking
    assert failed(sales(Anomalies(warn_z=100)), day) == {}


def test_known_events_are_no_baseline_and_no_alarm() -> None:
    """Without it, last year's sale would hide this year's fault, and each sale would raise an alarm."""
    sale = {MONDAY - timedelta(weeks=n): "spring sale" for n in (1, 2, 3)}
    before = history() | {day: day_of(day, null_users=900).as_json() for day in sale}
    assert baseline(MONDAY, before, sale, 3) == [MONDAY - timedelta(weeks=n) for n in (6, 5, 4)]
    assert "null_drift" in failed(sales(known_events=sale), day_of(MONDAY, null_users=900), before)
    known = sales(known_events={MONDAY: "sale"})
    assert failed(known, day_of(MONDAY, null_users=900)) == {}
    told = [o.message for o in drifts(known, day_of(MONDAY, null_users=900), history()) if o.check == "null_drift"]
    assert "a known event: sale" in told[0]
    counts = dict.fromkeys(history(), 1000)
    assert known.quality.volume is None
    from lakehouse.contracts import Volume

    tenth = DayMetrics(MONDAY, rows=100)
    assert not volume(Volume(), tenth, counts).passed
    assert volume(Volume(), tenth, counts, {MONDAY: "sale"}).passed


def test_too_little_history_claims_nothing() -> None:
    """Without it, the second Monday of a new table would be judged by the first."""
    outcomes = drifts(sales(), day_of(MONDAY, null_users=900), history(weeks=3))
    assert {o.check: o.passed for o in outcomes} == {"null_drift": True, "mean_shift": True, "category_mix": True}
    assert all("not enough history: 3 of 4" in o.message for o in outcomes)
    assert drifts(sales(), day_of(MONDAY, rows=0), history())[0].message == "no rows"


def test_figures_kept_by_older_code_are_no_baseline() -> None:
    """Without it, the first run after a change of what is kept would break on each day."""
    older = history()
    for figures in older.values():
        for name in ("log_mean", "log_stddev"):
            figures["profile"]["amount"][name] = None
    assert failed(sales(), day_of(MONDAY, log_mean=9.0), older) == {}


def weeks(*rows: int) -> dict[date, int]:
    """Rows of the Mondays before, the newest last."""
    return {MONDAY - timedelta(weeks=len(rows) - n): each for n, each in enumerate(rows)}


def test_a_day_without_rows_warns_where_its_weekday_has_some() -> None:
    """Without it, a file that never came would be a green day, seven of seven checks passed."""
    bounds = Volume()
    missing = volume(bounds, DayMetrics(MONDAY), weeks(90, 110, 0, 100, 100))
    assert (missing.passed, missing.blocking) == (False, False)
    assert missing.message.startswith("no rows, but 4 of the last 5 same weekdays had some, usually 100")
    known = volume(bounds, DayMetrics(MONDAY), weeks(90, 110, 100, 100, 100), {MONDAY: "Easter"})
    assert (known.passed, "a known event: Easter" in known.message) == (True, True)


@pytest.mark.parametrize(
    "rows", [(), (100, 100, 100), (100, 0, 0, 0, 100, 0, 100, 100), (100, 100, 100, 100, 0, 0, 0, 0)]
)
def test_a_day_without_rows_is_well_where_its_weekday_often_has_none(rows: tuple[int, ...]) -> None:
    """Without it, every Sunday of a shop that is closed would warn, and soon nobody would look."""
    assert volume(Volume(), DayMetrics(MONDAY), weeks(*rows)).passed


def test_a_day_that_is_not_over_can_have_too_much_and_not_too_little() -> None:
    """Without it, today would be refused each morning, and told to people, until the day is half over."""
    usual = weeks(90, 110, 100, 100)
    few = volume(Volume(), DayMetrics(MONDAY, rows=3), usual, so_far=lambda _: {})
    assert (few.passed, "the day is not over" in few.message) == (True, True)
    assert not volume(Volume(), DayMetrics(MONDAY, rows=3), usual).passed
    assert volume(Volume(), DayMetrics(MONDAY), usual, so_far=lambda _: {}).passed
    many = volume(Volume(), DayMetrics(MONDAY, rows=500), usual, so_far=lambda _: {})
    assert (many.passed, many.blocking) == (False, True)


@pytest.mark.parametrize(("rows", "passed"), [(40, True), (26, True), (9, False)])
def test_a_day_that_is_not_over_is_judged_by_the_time_of_day(rows: int, passed: bool) -> None:
    """Without it, a source that stopped at breakfast would be told tomorrow, or every morning would warn."""
    usual = weeks(90, 110, 100, 100)
    so_far = dict.fromkeys(usual, 30)
    found = volume(
        Volume(), DayMetrics(MONDAY, rows=rows), usual, so_far=lambda days: {day: so_far[day] for day in days}
    )
    assert (found.passed, found.blocking, found.values["usual_rows_by_now"]) == (passed, False, 30)
    assert "by this time of day it usually has 30" in found.message
    # Two Mondays that were built as they came say nothing yet.
    few = dict(list(so_far.items())[:2])
    assert volume(Volume(), DayMetrics(MONDAY, rows=rows), usual, so_far=lambda _: few).passed
    known = volume(Volume(), DayMetrics(MONDAY, rows=9), usual, {MONDAY: "Easter"}, so_far=lambda _: so_far)
    assert known.passed, "as of a day that is over"
