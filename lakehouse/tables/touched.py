"""Which days of a table are not what their inputs and code of now would give: decided from logs, without an engine."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

from lakehouse.contracts import Table
from lakehouse.sources.landing import landing_files
from lakehouse.tables.lake import Lake
from lakehouse.tables.plan import day_transaction, make_plan


def stale_days(lake: Lake, table: Table, days: Collection[date] | None = None) -> list[date]:
    """The days that are not published, quarantine included, from the inputs and code that are there now, in order.

    A late file, a corrected day, a restored version or changed code of an input make exactly those days stale that
    read it: an arrival day names the event days it holds in the log, and a window reads the days before.

    Args:
        lake: where the tables are.
        table: whose days.
        days: the days to look at; None: all that have input or were published.
    """
    looked_at = sorted(known_days(lake, table) if days is None else set(days))
    if not looked_at:
        return []
    plan = make_plan(lake, table, looked_at)
    snapshots = [lake.snapshot(table.id)]
    if table.landing:
        # A file that was tidied away once its rows were published is no change of them.
        published = snapshots[0].rows_by_day(table.day_column)
        looked_at = [day for day in looked_at if plan.landed[day] or not published.get(day)]
    if table.rules:
        snapshots.append(lake.snapshot(table.quarantine_id))
    return [
        day
        for day in looked_at
        if any(each.transaction(day_transaction(day)) != plan.fingerprints[day] for each in snapshots)
    ]


def known_days(lake: Lake, table: Table) -> set[date]:
    """The days of a table that have input or published rows."""
    known = set(lake.snapshot(table.id).by_day(table.day_column))
    if table.landing is not None:
        known |= {file.arrival_date for file in landing_files(lake.settings.root, table.landing.source)}
    for each in table.upstream.values():
        source = lake.table(each.table)
        read = lake.snapshot(each.table).by_day(source.content_day_column)
        known |= {day + timedelta(days=n) for day in read for n in range(each.days_before + 1)}
    return known
