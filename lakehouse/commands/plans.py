"""What a build would do, decided from logs and landed files: no engine, no writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from lakehouse.settings import Settings

if TYPE_CHECKING:
    from lakehouse.tables.estimate import Estimate
    from lakehouse.tables.lake import Lake


@dataclass(frozen=True)
class DayPlan:
    """Days of a table that would be built, and days that would be left as they are."""

    table: str
    build: list[date]
    unchanged: list[date]
    estimate: Estimate


def plan_days(
    settings: Settings, names: Sequence[str], wanted: Mapping[str, Collection[date]], *, force: bool = False
) -> list[DayPlan]:
    """What a backfill would build, table by table, upstream tables first.

    A day is also built where a day of an input that it reads would be built in the same backfill: whether that
    changes the input is known only afterwards, so this is the most that could happen.

    Args:
        settings: where the lakehouse is.
        names: tables, upstream first.
        wanted: days by table.
        force: count unchanged days as days to build.
    """
    from lakehouse.tables.estimate import estimate
    from lakehouse.tables.history import records
    from lakehouse.tables.plan import window
    from lakehouse.tables.touched import stale_days

    lake = lake_without_engine(settings)
    building: dict[str, set[date]] = {}
    plans: list[DayPlan] = []
    for name in names:
        days = sorted(wanted.get(name, ()))
        contract = lake.table(name)
        stale = set(days) if force else set(stale_days(lake, contract, days))
        for day in days:
            if any(
                building.get(each.table, set()).intersection(window(each, day)) for each in contract.upstream.values()
            ):
                stale.add(day)
        building[name] = stale
        cost = estimate(records(settings.root, name), len(stale))
        plans.append(DayPlan(name, sorted(stale), sorted(set(days) - stale), cost))
    return plans


def stale_by_table(
    lake: Lake, names: Sequence[str], within: tuple[date, date], *, outdated: bool = False
) -> dict[str, set[date]]:
    """The stale days of each table, and those that read a stale day of another of these tables.

    Which event days a landed file touches is known only once it is in bronze, so downstream of a stale arrival day
    this is what is known before a build.

    Args:
        lake: where the tables are.
        names: tables, upstream first.
        within: first and last day looked at.
        outdated: begin with the days that older code built instead of all stale ones.
    """
    from lakehouse.tables.history import older_code
    from lakehouse.tables.touched import known_days, stale_days

    first, last = within
    found: dict[str, set[date]] = {}
    for name in names:
        contract = lake.table(name)
        days = set(stale_days(lake, contract))
        if outdated:
            older = older_code(lake.settings.root, name, contract.code_version)
            days &= {day for built in older.values() for day in built}
        touched = {
            day + timedelta(days=n)
            for each in contract.upstream.values()
            for day in found.get(each.table, ())
            for n in range(each.days_before + 1)
        }
        found[name] = {day for day in days | (touched & known_days(lake, contract)) if first <= day <= last}
    return found


def lake_without_engine(settings: Settings) -> Lake:
    """The lake for reading logs; asking it for a Spark session is a mistake in this program."""
    from lakehouse.catalog import tables
    from lakehouse.tables.lake import LakeOfNow

    return LakeOfNow(settings, tables())
