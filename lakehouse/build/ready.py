"""Whether a day of a table can be read by those who wait for it: told by the table's own log, so it cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from lakehouse.build.open_days import in_words, open_until
from lakehouse.build.stale import stale_days, waiting_days
from lakehouse.build.verdicts import verdicts
from lakehouse.contracts import Table
from lakehouse.days import is_between
from lakehouse.delta.transactions import day_transaction
from lakehouse.read.lake import Lake
from lakehouse.records.day_record import DayRecord
from lakehouse.records.history import RESTORE, latest_records

READY, STALE, MISSING, OPEN = "ready", "stale", "missing", "open"


@dataclass(frozen=True)
class Readiness:
    """One day of one table.

    Attributes:
        status: `ready`; `stale` where the last good data stands and something it is made from has changed since;
            `missing` where the day is not published; `open` where it is ready, but not over: rows of it
            may come.
        reason: what a day that is not ready waits for.
        version: of the table, as it was looked at; -1 where it does not exist.
        rows: of the day.
        run_id, published_at: of the commit that published the day; None where it is missing.
        failing: by check that fails on the day, what it found; a day that is ready has warnings only.
    """

    table: str
    day: date
    status: str
    reason: str
    version: int
    rows: int
    run_id: str | None
    published_at: datetime | None
    failing: Mapping[str, str] = field(default_factory=dict)


def readiness(lake: Lake, table: Table, day: date, now: datetime) -> Readiness:
    """Whether a day is published from the newest of all that it is made from, directly or not. Starts no engine.

    Args:
        lake: where the tables are.
        table: whose day.
        day: the daily partition.
        now: a day whose rows come while it is on is open until it is over.
    """
    snapshot = lake.snapshot(table.id)
    rows = snapshot.rows_by_day(table.day_column).get(day, 0)
    # A day without rows is published too, and its fingerprint says so; a restore may bring rows without one.
    published = rows > 0 or snapshot.transaction(day_transaction(day)) is not None
    found = verdicts(lake, table, [day])
    refused = [each for each in found if each.blocking]  # its last good rows stand, but are not of its newest input
    record = latest_records(lake.settings.root, table.id, [day]).get(day)
    if not published:
        status, reason = MISSING, f"{table.id} {day} {_why_missing(record)}{_no_partition(lake, day)}"
        record = None  # its newest commit is not one that published it
    else:
        reason = _why_stale(lake, table, day, refused=bool(refused))
        status = STALE if reason else READY
        if status == READY and (until := open_until(lake, table, day, now)) is not None:
            status, reason = OPEN, f"rows of {day} may come {in_words(until)}"
    if refused:
        reason += "; its newest build was refused, " + "; ".join(f"{each.check}: {each.found}" for each in refused)
    return Readiness(
        table.id,
        day,
        status,
        reason,
        snapshot.version,
        rows,
        record.run_id if record else None,
        record.at if record else None,
        {each.check: each.found for each in found},
    )


def _why_missing(record: DayRecord | None) -> str:
    """That a day is not published, with what took it away where something did, by the newest record of it."""
    if record is None or record.operation != RESTORE:
        return "was never published"
    return f"is not published: it was restored, {record.at:%Y-%m-%d %H:%M} UTC, to a version before its first rows"


def _no_partition(lake: Lake, day: date) -> str:
    """That nothing will build a day, of one that is not among the lake's days; empty of others."""
    first, last = lake.settings.first_day, lake.settings.last_day
    if is_between(day, first, last):
        return ""
    return f", and is no day of the lake, which {f'begins with {first}' if day < first else f'ends with {last}'}"


def _why_stale(lake: Lake, table: Table, day: date, *, refused: bool) -> str:
    """Why a published day is not of the newest of all that it is made from; empty where it is."""
    if refused or stale_days(lake, table, [day]):
        return f"{table.id} {day} is not published from its newest input and code"
    return waiting_days(lake, table, [day]).get(day, "")
