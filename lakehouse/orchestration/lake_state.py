"""What decides which days are due, as one text: while it is the same, there is nothing to look for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path

from lakehouse import store
from lakehouse.build import open_days
from lakehouse.build.plan import present_key_id
from lakehouse.contracts import Table
from lakehouse.orchestration.ended import Ended
from lakehouse.read.lake import Lake
from lakehouse.sources.landing import landing_files


def state_of(lake: Lake, last: date, ended: Ended, now: datetime) -> str:
    """A digest of all that decides what is due: files, keys, commits, code, ended runs, and which days are over.

    Args:
        lake: without an engine.
        last: newest partition.
        ended: days whose newest run was cancelled.
        now: the moment, with a time zone.
    """
    parts = [day.isoformat() for day in (last, lake.settings.first_day, *open_days.newest_closed(lake, now))]
    for each in (ended.by_somebody, ended.interrupted):
        parts += [f"{name}/{day}" for name, days in sorted(each.items()) for day in sorted(days)] + ["/"]
    for name, table in lake.tables.items():
        parts.append(f"{name}/{table.code_version}/{table.policy_version}")
        parts += _landed(lake, table)
        parts += [f"{own}/{_newest_entry(lake.path(own))}" for own in (name, table.quarantine_id)]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def _landed(lake: Lake, table: Table) -> Iterator[str]:
    """What a table reads that is not in a log."""
    if table.landing is None:
        return
    yield f"{table.id}/{table.landing.during_day}"
    files = landing_files(lake.settings.root, table.landing)
    yield from (f"{file.path}/{file.stat}" for file in files)
    if files and table.privacy.tokens:  # who looks at a lake without files makes no key
        yield present_key_id(lake.settings)


def _newest_entry(table: Path) -> str:
    """Which one it is, and not its number alone: a table that was made anew may have as many. Empty: there is none."""
    newest = max(store.listed(table / "_delta_log", "*.json"), default=None)
    return f"{newest.name}/{store.stat(newest)}" if newest else ""
