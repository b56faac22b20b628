"""What a build would do, decided from logs and landed files: no engine, no writes.

`lakehouse.build.stale` says what *stale*, *waiting* and *late* mean. `--stale` chooses stale days, `--older-code` those
of them that older code built.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from lakehouse.build.made_from import touched_days
from lakehouse.build.plan import input_days, neighbours, output_days
from lakehouse.build.stale import all_stale_days, days_of_older_code, known_days, never_built, stale_days
from lakehouse.catalog import lake_without_engine, tables
from lakehouse.contracts.graph import all_downstream
from lakehouse.orchestration.pieces import Piece
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.estimate import Estimate, estimate
from lakehouse.records.history import records
from lakehouse.runs.selection import last_partition
from lakehouse.settings import Settings
from lakehouse.texts import counted


@dataclass(frozen=True)
class DayPlan:
    """Days of a table that would be built, and days that would be left as they are."""

    table: str
    build: list[date]
    unchanged: list[date]
    estimate: Estimate


def plan_days(
    settings: Settings,
    names: Sequence[str],
    wanted: Mapping[str, Collection[date]],
    *,
    force: bool = False,
    pieces: Sequence[Piece] = (),
) -> list[DayPlan]:
    """What a backfill would build, table by table, upstream tables first.

    A day is also built where a day of an input that it reads would be built in the same backfill: whether that
    changes the input is known only afterwards, so this is the most that could happen.

    Args:
        settings: where the lakehouse is.
        names: tables, upstream first.
        wanted: days by table.
        force: count unchanged days as days to build.
        pieces: the runs that will build them, since each costs something by itself; none: one run.

    Returns:
        A plan a table, in the order of the names; seconds and rows are those of earlier builds.
    """
    lake = lake_without_engine(settings)
    building: dict[str, set[date]] = {}
    plans: list[DayPlan] = []
    for name in names:
        days = sorted(wanted.get(name, ()))
        contract = lake.table(name)
        stale = set(days) if force else set(stale_days(lake, contract, days))
        for day in days:
            if any(
                building.get(each.table, set()).intersection(input_days(each, near))
                for each in contract.upstream.values()
                for near in [day, *neighbours(contract, day)]
            ):
                stale.add(day)
        building[name] = stale
        builds = [stale.intersection(piece.days) for piece in pieces if name in piece.tables] if pieces else [stale]
        # By run, since each costs something however few days it has.
        cost = _cost(records(settings.root, name), builds)
        plans.append(DayPlan(name, sorted(stale), sorted(set(days) - stale), cost))
    return plans


def _cost(kept: Sequence[DayRecord], builds: Sequence[Collection[date]]) -> Estimate:
    costs = [estimate(kept, len(days)) for days in builds if days]
    # A sum that leaves out a run nobody has figures of would promise too little: then nothing is promised.
    seconds = [each.seconds for each in costs if each.seconds is not None]
    rows = [each.rows for each in costs if each.rows is not None]
    return Estimate(
        sum(seconds) if len(seconds) == len(costs) else None, sum(rows) if len(rows) == len(costs) else None
    )


def forecast(plans: Sequence[DayPlan], runs: int) -> str:
    """What a backfill is about to build and will take, in one line.

    Args:
        plans: by table.
        runs: how many there will be.
    """
    told = [f"{counted(sum(len(each.build) for each in plans), 'partition')} to build in {counted(runs, 'run')}"]
    building = [each for each in plans if each.build]
    # A table that was never built has no figures: it is counted apart, and not taken to be quick.
    known = [each for each in building if each.estimate.seconds is not None]
    if known:
        told.append(f"about {sum(each.estimate.rows or 0 for each in known):,} rows")
        told.append(
            f"about {sum(each.estimate.seconds or 0.0 for each in known):.0f} s of work as builds before it went"
        )
    if len(known) < len(building):
        told.append(f"no figures yet for {counted(len(building) - len(known), 'table')}")
    return f"Before the start: {', '.join(told)}."


def stale_by_table(
    lake: Lake, names: Sequence[str], within: tuple[date, date], *, by_code: bool = False
) -> dict[str, set[date]]:
    """The stale days of each table, and those that read a stale day of another of these tables.

    Which event days a landed file touches is known only once it is in bronze, so downstream of a stale arrival day
    this is what is known before a build.

    Args:
        lake: where the tables are.
        names: tables, upstream first.
        within: first and last day looked at.
        by_code: begin with the days that older code built instead of all stale ones, and what they read that was
            never built.
    """
    first, last = within
    found: dict[str, set[date]] = {}
    of_code = _of_older_code(lake, names, within) if by_code else {}
    for name in names:
        contract = lake.table(name)
        # Its own log knows what has changed up to now; what the days found above will change, only the graph knows.
        days = of_code[name] if by_code else set(all_stale_days(lake, contract))
        touched = {
            reader
            for each in contract.upstream.values()
            for day in found.get(each.table, ())
            for reader in touched_days(contract, each, day)
        }
        # A day that has only landed has no rows yet, and its readers nothing to read: both come with this build.
        coming = {
            reader
            for each in contract.upstream.values()
            for day in found.get(each.table, ())
            for reader in output_days(each, day)
        }
        found[name] = {day for day in days | coming | (touched & known_days(lake, contract)) if first <= day <= last}
    return found


def _of_older_code(lake: Lake, names: Sequence[str], within: tuple[date, date]) -> dict[str, set[date]]:
    """By table, the stale days that older code built, and those that were never built and that such a day reads now.

    A table that was split, merged, renamed or exchanged for another has not one day: built from it as it is, the days
    that read it would lose the rows that they have.
    """
    first, last = within
    read, found = dict[str, set[date]](), dict[str, set[date]]()
    for name in reversed(names):  # what reads a table comes before it
        contract = lake.table(name)
        stale = {day for day in all_stale_days(lake, contract) if first <= day <= last}
        built = {day for days in days_of_older_code(lake, contract).values() for day in days} & stale
        # Also where it has no input yet: what it reads may have been moved as well.
        wanted = built | never_built(lake, contract, read.get(name, set()))
        found[name] = stale & wanted
        for each in contract.upstream.values():
            read.setdefault(each.table, set()).update(day for reader in wanted for day in input_days(each, reader))
    return found


def stale_downstream(settings: Settings, name: str) -> dict[str, list[date]]:
    """By table that depends on this one, directly or not: the days that a run would build again now."""
    found = stale_by_table(
        lake_without_engine(settings), all_downstream(tables(), name), (settings.first_day, last_partition())
    )
    return {each: sorted(days) for each, days in found.items() if days}
