"""What rebuilding the stale days writes, beside a fixed look-back: both from log entries and file sizes alone.

A fixed look-back of N days rebuilds the newest arrival day and the N days before it in every table, whatever came
(dbt's `lookback`, for one). It writes days that nothing touched, and misses what came later than N days.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from lakehouse.contracts import Table
from lakehouse.contracts.graph import all_upstream
from lakehouse.delta.log import days_of, entries
from lakehouse.delta.snapshot import Snapshot
from lakehouse.read.lake import Lake

USUAL = (7, 30)  # days of look-back to compare with, beside the one that would have been needed


@dataclass(frozen=True)
class LookBack:
    """A fixed look-back of `look_back` days: days of tables it writes, their bytes, and stale days that it misses."""

    look_back: int
    days: int
    bytes: int
    missed_days: int


@dataclass(frozen=True)
class Rewritten:
    """Days of tables that were (or would be) written, their bytes, and what fixed look-backs would have written.

    The last of `beside` is the shortest that misses nothing. Landed tables are left out: their days are arrivals, which
    either way are written once.
    """

    newest_arrival: date | None
    days: int
    bytes: int
    beside: Sequence[LookBack]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "beside": [asdict(each) for each in self.beside]}


def versions(lake: Lake, names: Iterable[str]) -> dict[str, int]:
    """The version of each table, to ask later what was written since."""
    return {name: lake.snapshot(name).version for name in names}


def written_since(lake: Lake, before: Mapping[str, int], runs: Collection[str]) -> Rewritten:
    """What some runs have written since the tables had some versions.

    Args:
        lake: where the tables are; it must not have been opened before the runs.
        before: version by table.
        runs: ids of the runs; what others wrote meanwhile does not count.
    """
    days: dict[str, set[date]] = {}
    size = 0
    for table in _derived(lake, before):
        snapshot, since = lake.snapshot(table.id), max(before[table.id], 0)
        for entry in entries(lake.path(table.id), since + 1, snapshot.version, snapshot.partition_by):
            if entry.facts.get("lakehouse.run_id") in runs:
                size += sum(file.size for file in entry.added.values())
                files = [*entry.added.values(), *entry.removed.values()]
                published = {date.fromisoformat(day) for day in entry.figures}
                days.setdefault(table.id, set()).update(days_of(files) | published)
    return _beside(lake, before, days, size)


def would_write(lake: Lake, wanted: Mapping[str, Collection[date]]) -> Rewritten:
    """What building some days would write, by the sizes they have now; a new day is taken to be as large as usual."""
    size = 0
    for table in _derived(lake, wanted):
        sizes = _sizes(lake.snapshot(table.id), table)
        usual = round(statistics.median(sizes.values())) if sizes else 0
        size += sum(sizes.get(day, usual) for day in wanted[table.id])
    return _beside(lake, wanted, wanted, size)


def look_back(lake: Lake, names: Iterable[str], newest: date, days: int) -> tuple[int, int]:
    """Days of tables that a fixed look-back writes, and their bytes.

    Args:
        lake: where the tables are.
        names: the tables; landed ones are left out.
        newest: the newest arrival day.
        days: how many days the look-back reaches behind it.
    """
    written = size = 0
    for table in _derived(lake, names):
        inside = [n for day, n in _sizes(lake.snapshot(table.id), table).items() if 0 <= (newest - day).days <= days]
        written += len(inside)  # every day in reach, whether or not anything came for it
        size += sum(inside)
    return written, size


def _beside(lake: Lake, names: Iterable[str], touched: Mapping[str, Collection[date]], size: int) -> Rewritten:
    derived = _derived(lake, names)
    all_days = [day for table in derived for day in touched.get(table.id, ())]
    newest = _newest_arrival(lake, derived, touched)
    if newest is None or not all_days:
        return Rewritten(newest, len(all_days), size, ())
    needed = max(0, (newest - min(all_days)).days)  # the shortest look-back that reaches the oldest touched day
    # A length beyond what was needed would only write more and miss as little: it says nothing.
    lengths = [days for days in USUAL if days < needed] + [needed]
    beside = [
        LookBack(
            days, *look_back(lake, names, newest, days), sum(day < newest - timedelta(days=days) for day in all_days)
        )
        for days in lengths
    ]
    return Rewritten(newest, len(all_days), size, beside)


def _derived(lake: Lake, names: Iterable[str]) -> list[Table]:
    return [lake.table(name) for name in names if lake.table(name).upstream]


def _newest_arrival(lake: Lake, derived: Iterable[Table], touched: Mapping[str, Collection[date]]) -> date | None:
    """The newest day, built or to be built, of the tables at the beginning: what landed, or came from a database."""
    found: set[date] = set()
    read = set[str]().union(*(all_upstream(lake.tables, table) for table in derived))
    for table in map(lake.table, read):
        if not table.upstream:
            found.update(lake.snapshot(table.id).by_day(table.day_column), touched.get(table.id, ()))
    return max(found, default=None)


def _sizes(snapshot: Snapshot, table: Table) -> dict[date, int]:
    return {day: sum(file.size for file in files) for day, files in snapshot.by_day(table.day_column).items()}
