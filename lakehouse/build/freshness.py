"""The freshness of a lake's table: its records, and what its sources say of what is still to come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lakehouse.build.open_days import come_to
from lakehouse.checks.freshness import BUDGET_DAYS, FreshnessState, judge
from lakehouse.contracts import Table
from lakehouse.contracts.graph import with_upstream
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import records


def freshness(
    lake: Lake, table: Table, now: datetime, kept: Sequence[DayRecord] | None = None, back: int = BUDGET_DAYS
) -> FreshnessState:
    """Whether the newest due day of a table is complete, and how many days of the last month were in time.

    Args:
        lake: where the tables are; its settings say the first and the last day.
        table: the table.
        now: the moment, with a time zone.
        kept: its records, oldest commit first, where they are known.
        back: days before the due one that are judged.
    """
    settings, reached = lake.settings, come_to(lake, table)
    return judge(
        table,
        records(settings.root, table.id) if kept is None else kept,
        now,
        settings.last_day,
        back,
        settings.first_day,
        reached and reached.date(),
        expected=_expects_rows(lake, table),
    )


def _expects_rows(lake: Lake, table: Table) -> bool:
    """Not of sources that have no address here, as in a demo; whoever looks at one that was begun may lack it, too."""
    read = with_upstream(lake.tables, table)
    taken = {each.taken.source for each in read if each.taken is not None}
    from_files = any(each.landing is not None for each in read)
    return from_files or not taken or not taken.isdisjoint(lake.settings.source_urls)
