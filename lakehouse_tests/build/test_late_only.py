"""Days that hold late rows only are told from the log, and are no measure of what a day usually holds."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise

import pytest

from lakehouse.build.late_only import late_only
from lakehouse.delta.commit import ensure_table, replace_days
from lakehouse.delta.target import Commit, Target
from lakehouse.read.lake import Lake
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.making import stage_rows
from lakehouse_tests.orchestration.test_automation import BRONZE, GOLD, SILVER, catalog

DAYS = [date(2026, 3, 2) + timedelta(days=n) for n in range(8)]


@pytest.fixture
def made(lake: LakeFactory) -> Lake:
    return lake(*catalog())


def arrive(lake: Lake, arrived: date, rows: dict[date, int]) -> None:
    """An arrival day with so many rows by the day that they belong to."""
    table = lake.table(BRONZE)
    target = Target(lake.path(BRONZE), table.schema, table.partition_by)
    cells = [{"id": "1", "arrived": arrived, "day": day} for day, number in rows.items() for _ in range(number)]
    replace_days(target, ensure_table(target), stage_rows(target, cells), [arrived], Commit())


def told(lake: Lake) -> dict[str, set[date]]:
    return {name: late_only(lake, lake.table(name)) for name in (BRONZE, SILVER, GOLD)}


def test_a_closed_day_with_a_few_late_rows_is_no_measure(made: Lake) -> None:
    """Without it, three late rows of a holiday would pull down what its weekday usually has, and hide a lost file."""
    for day in (*DAYS[:3], *DAYS[4:6]):
        arrive(made, day, {day: 100})
    arrive(made, DAYS[6], {DAYS[6]: 90, DAYS[3]: 3, DAYS[2]: 7})
    assert told(made) == {BRONZE: set(), SILVER: {DAYS[3]}, GOLD: {DAYS[3]}}
    arrive(made, DAYS[7], {DAYS[2]: 4, DAYS[3]: 2})
    assert told(made)[BRONZE] == {DAYS[7]}, "an arrival day of stragglers is no measure of arrivals"
    arrive(made, DAYS[3], {DAYS[3]: 80})
    assert told(made)[SILVER] == set(), "its own file has come"


def test_rows_that_always_come_a_day_later_are_on_time(made: Lake) -> None:
    """Without it, a source that delivers yesterday's rows would have no history at all."""
    for before, day in pairwise(DAYS):
        arrive(made, day, {before: 50})
    assert told(made) == {BRONZE: set(), SILVER: set(), GOLD: set()}


def test_the_days_of_a_first_file_of_history_are_on_time(made: Lake) -> None:
    """Without it, a lakehouse that began with one file of its past would ignore all of that past."""
    arrive(made, DAYS[5], dict.fromkeys(DAYS[:6], 100))
    arrive(made, DAYS[6], {DAYS[6]: 100})
    assert told(made)[SILVER] == set()
