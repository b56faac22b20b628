"""What a build would do, decided from logs and landed files: no engine, no writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, NoReturn

from lakehouse.settings import Settings

if TYPE_CHECKING:
    from lakehouse.contracts import Table
    from lakehouse.tables.lake import Lake


@dataclass(frozen=True)
class DayPlan:
    """Days of a table that would be built, and days that would be left as they are."""

    table: str
    build: list[date]
    unchanged: list[date]


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
    from lakehouse.tables.plan import window

    lake = lake_without_engine(settings)
    building: dict[str, set[date]] = {}
    plans: list[DayPlan] = []
    for name in names:
        days = sorted(wanted.get(name, ()))
        contract = lake.table(name)
        stale = set(days) if force else outdated_days(lake, contract, days)
        for day in days:
            if any(
                building.get(each.table, set()).intersection(window(each, day)) for each in contract.upstream.values()
            ):
                stale.add(day)
        building[name] = stale
        plans.append(DayPlan(name, sorted(stale), sorted(set(days) - stale)))
    return plans


def outdated_days(lake: Lake, table: Table, days: Sequence[date]) -> set[date]:
    """The days that are not published from the inputs and code that are there now."""
    if not days:
        return set()
    from lakehouse.tables.plan import day_transaction, make_plan

    plan = make_plan(lake, table, days)
    snapshots = [lake.snapshot(table.id)]
    if table.rules:
        snapshots.append(lake.snapshot(table.quarantine_id))
    return {
        day
        for day in days
        if any(each.transaction(day_transaction(day)) != plan.fingerprints[day] for each in snapshots)
    }


def lake_without_engine(settings: Settings) -> Lake:
    """The lake for reading logs; asking it for a Spark session is a mistake in this program."""
    from lakehouse.catalog import tables
    from lakehouse.tables.lake import Lake
    from lakehouse.tables.snapshot import Snapshot

    def refuse() -> NoReturn:
        raise AssertionError("this command reads logs only and starts no engine")

    class LakeOfNow(Lake):
        """Opens each table once, so that a command tells one state of it."""

        def snapshot(self, name: str, version: int | None = None) -> Snapshot:
            if version is not None:
                return super().snapshot(name, version)
            if name not in opened:
                opened[name] = super().snapshot(name)
            return opened[name]

    opened: dict[str, Snapshot] = {}
    return LakeOfNow(settings, tables(), refuse)
