"""Days that hold late rows only: no measure of what a day usually holds, so no part of a baseline.

A few rows of a closed day that come with a later day's file make it a published day of three rows. Told from the log
of the landed tables, whose files are partitioned by arrival day and by the day that other tables see the rows in.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date

from lakehouse.contracts import Table
from lakehouse.read.lake import Lake

Arrivals = Mapping[date, Counter[date]]
"""By arrival day, rows by the day that they belong to."""


def late_only(lake: Lake, table: Table) -> set[date]:
    """The days of a table whose rows all arrived later than rows usually do; empty where that cannot be told."""
    if table.landing is not None:
        arrivals = _arrivals(lake, table)
        usual = _usual(arrivals)
        return {day for day, rows in arrivals.items() if (day - max(rows)).days > usual}
    on_time: set[date] = set()
    late: set[date] = set()
    for source in _landed(lake, table):
        if source is None or source.landing is None:  # of what is taken from a database, one batch may hold years
            return set()
        arrivals = _arrivals(lake, source)
        # Of usual lateness nothing is said; of a table that is always two days behind, two days are on time.
        usual = _usual(arrivals)
        typical = statistics.median(rows.total() for rows in arrivals.values()) if arrivals else 0
        for arrived, rows in arrivals.items():
            behind = _stragglers(arrived, rows, usual, typical)
            late |= behind
            on_time |= set(rows) - behind
    return late - on_time


def _stragglers(arrived: date, rows: Counter[date], usual: int, typical: float) -> set[date]:
    """Of an arrival: its event days that are further back than is usual for this source, in days."""
    behind = {day for day in rows if (arrived - day).days > usual}
    # A file of history, such as the first one, is no file of stragglers.
    history = 2 * sum(rows[day] for day in behind) > max(rows.total(), typical)
    return set() if history else behind


def _arrivals(lake: Lake, table: Table) -> Arrivals:
    snapshot = lake.snapshot(table.id)
    found: dict[date, Counter[date]] = {}
    if not snapshot.live.number or table.content_day_column == table.day_column:
        return found
    by_content = {file.path: day for day, files in snapshot.by_day(table.content_day_column).items() for file in files}
    for arrived, files in snapshot.by_day(table.day_column).items():
        for file in files:
            if file.rows and (day := by_content.get(file.path)) is not None:
                found.setdefault(arrived, Counter())[day] += file.rows
    return found


def _usual(arrivals: Arrivals) -> int:
    """Days from the newest rows of an arrival day to it, as a rule."""
    return max(0, int(statistics.median((day - max(rows)).days for day, rows in arrivals.items()))) if arrivals else 0


def _landed(lake: Lake, table: Table) -> Iterator[Table | None]:
    """The tables without tables above them that a table is made from; None for one that the lake does not know."""
    for each in table.upstream.values():
        source = lake.tables.get(each.table)
        if source is not None and source.upstream:
            yield from _landed(lake, source)
        else:
            yield source
