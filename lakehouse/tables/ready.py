"""Whether a day of a table can be read by those who wait for it: told by the table's own log, so it cannot be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from lakehouse.contracts import Table
from lakehouse.tables.history import standing
from lakehouse.tables.lake import Lake
from lakehouse.tables.plan import day_transaction
from lakehouse.tables.touched import behind, stale_days

READY, STALE, MISSING = "ready", "stale", "missing"


@dataclass(frozen=True)
class Readiness:
    """One day of one table.

    Attributes:
        status: `ready`; `stale` where the last good data stands and something it is made from has changed since;
            `missing` where the day was never published.
        reason: what a day that is not ready waits for.
        version: of the table, as it was looked at; -1 where it does not exist.
        rows: of the day.
        run_id, published_at: of the commit that published the day; None where it is missing.
    """

    table: str
    day: date
    status: str
    reason: str
    version: int
    rows: int
    run_id: str | None
    published_at: datetime | None


def readiness(lake: Lake, table: Table, day: date) -> Readiness:
    """Whether a day is published from the newest of all that it is made from, directly or not. Starts no engine."""
    snapshot = lake.snapshot(table.id)
    rows = snapshot.rows_by_day(table.day_column).get(day, 0)
    published = rows > 0 or snapshot.transaction(day_transaction(day)) is not None
    if not published:
        status, reason = MISSING, f"{table.id} {day} was never published"
    elif stale_days(lake, table, [day]):
        status, reason = STALE, f"{table.id} {day} is not published from its newest input and code"
    else:
        reason = behind(lake, table, [day]).get(day, "")
        status = STALE if reason else READY
    record = standing(lake.settings.root, table.id, [day]).get(day) if published else None
    return Readiness(
        table.id,
        day,
        status,
        reason,
        snapshot.version,
        rows,
        record.run_id if record else None,
        record.at if record else None,
    )
