"""The estimate before a backfill: right for builds like those before, and silent without any."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from lakehouse.records.estimate import estimate
from lakehouse.records.history import DayRecord

DAY = date(2026, 3, 2)
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def built(version: int, days: int, seconds: float, operation: str = "publish") -> list[DayRecord]:
    """One build of that many days, a hundred rows each."""
    figures = {"rows": 100, "seconds": seconds}
    return [
        DayRecord("silver.sales", DAY + timedelta(days=n), version, NOW, "run", "v1", operation, {}, figures)
        for n in range(days)
    ]


def test_builds_of_different_sizes_tell_what_a_build_and_what_a_day_costs() -> None:
    """Without it, a year would be estimated as 365 single runs."""
    kept = [*built(1, 1, 3.0), *built(2, 11, 8.0), *built(3, 101, 53.0)]
    found = estimate(kept, 51)
    assert (found.seconds, found.rows) == (pytest.approx(28.0), 5100)


def test_builds_of_one_size_are_taken_in_proportion() -> None:
    """Without it, one long backfill would say nothing about the next."""
    kept = built(1, 100, 50.0)
    assert estimate(kept, 200).seconds == pytest.approx(100.0)
    assert estimate(kept, 1).seconds == pytest.approx(50.0), "no build is known to be quicker"
    assert estimate(kept, 0).seconds == 0


def test_what_was_never_built_is_not_estimated() -> None:
    """Without it, a new table would look free."""
    assert (estimate([], 10).seconds, estimate([], 10).rows) == (None, None)
    assert estimate(built(1, 3, 9.0, operation="restore"), 3).seconds is None
