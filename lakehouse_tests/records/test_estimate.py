"""The estimate before a backfill: right for builds like those before, and silent without any."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.build.build import build
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.estimate import estimate
from lakehouse.records.history import records
from lakehouse_tests.build.test_build import DAYS, land, sensors
from lakehouse_tests.conftest import LakeFactory

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


def test_the_start_of_the_engine_is_no_part_of_a_build(lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first day's thousand seconds of start-up would be multiplied by the days of a backfill."""
    shop = lake(*sensors())
    land(shop, DAYS[0], [("a", None, 1)])
    now = SimpleNamespace(waited=0.0)
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + now.waited)
    monkeypatch.setattr("lakehouse.build.laps.time", clock)
    monkeypatch.setattr("lakehouse.read.lake.time", clock)
    session = shop._engine

    def start() -> Any:
        now.waited += 1000
        return session()

    cold = Lake(shop.settings, shop.tables, start)
    result = build(cold, cold.table("bronze.readings"), DAYS[:1], run_id="first")
    assert result.seconds["engine"] >= 1000
    kept = records(shop.settings.root, "bronze.readings")
    assert 0 < kept[0].figures["seconds"] < 1000
    assert (estimate(kept, 100).seconds or 0) < 100_000
