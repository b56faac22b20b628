"""The day that is on: where rows of it come before it is over, it is a partition, and open.

An open day is published like any other, whenever something of it comes, and its checks judge what is there. That it is
not complete yet is told beside it; it closes by itself. A day that was built while it was open is stale once it is over
(`lakehouse.build.plan`): it is built once more, and judged as a whole.

A stream that is behind has days open, too: those that its watermark has not passed, while messages wait for a later
batch. Judged as a whole from the first of them, a day would be refused until enough has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from lakehouse import store
from lakehouse.build.intake.ends import batch_of, taken_until
from lakehouse.contracts import Landing, Table
from lakehouse.contracts.graph import with_upstream
from lakehouse.days import end_of, newest_day, start_of
from lakehouse.delta.layout import entry_path, table_path
from lakehouse.read.lake import Lake
from lakehouse.records.history import records
from lakehouse.settings import Settings
from lakehouse.sources.landing import LandingFile, landing_files

_NOBODY_KNOWS = datetime.max.replace(tzinfo=UTC)  # when messages that wait are taken


def newest_partition(settings: Settings, tables: Mapping[str, Table], now: datetime) -> date:
    """The newest day that has a partition: today, UTC, where rows of it come to any table; else the last that is over.

    Args:
        settings: the last day of a lake whose data has ended, and the addresses of what is taken.
        tables: every table of the lake.
        now: the moment, with a time zone.
    """
    return now.date() if has_today(settings, tables) else newest_day(settings.last_day, now)


def has_today(settings: Settings, tables: Mapping[str, Table]) -> bool:
    """Whether the day that is on is a partition.

    Args:
        settings: as of `newest_partition`.
        tables: every table of the lake.
    """
    return any(_brings_today(settings, table) for table in tables.values())


def takes_today(settings: Settings, tables: Mapping[str, Table], table: Table) -> bool:
    """Whether rows of the day that is on come to a table: of files that come `during_day`, or of what is taken.

    Args:
        settings: a lake whose data has ended has no such day; nothing is taken where no address is set, or ever was.
        tables: every table of the lake.
        table: which reads them, directly or not.
    """
    return any(_brings_today(settings, each) for each in with_upstream(tables, table))


def _brings_today(settings: Settings, table: Table) -> bool:
    """Whether a table's own source, if it has one, brings rows of the day that is on."""
    if settings.last_day is not None:
        return False
    if table.landing is not None:
        return table.landing.during_day
    if table.taken is None:
        return False
    # Whoever looks at a lake may not have the address that its stream has.
    return table.taken.source in settings.source_urls or _has_batches(settings.root, table)


def _has_batches(root: Path, table: Table) -> bool:
    """Whether anything was added to a table since it was made, empty, as a run of all tables makes it.

    Told by names of files: definitions ask as they are loaded, and a process that has opened a table cannot be forked.
    """
    folder = table_path(root, table.id)
    return any(map(store.exists, (entry_path(folder, 1), folder / "_delta_log" / "_last_checkpoint")))


def landed_by_now(lake: Lake, table: Table, first: date | None = None, last: date | None = None) -> list[LandingFile]:
    """The landed files that days are built from: those of today wait until it is over, unless they come `during_day`.

    Args:
        lake: where the tables are.
        table: which reads them; of one that reads no files there are none.
        first: first arrival day wanted; None: from the first there is.
        last: last arrival day wanted, inclusive; None: to the last there is.
    """
    if table.landing is None:
        return []
    newest = newest_arrival(table.landing, present())
    files = landing_files(lake.settings.root, table.landing, first, last)
    return [file for file in files if file.arrival_date <= newest]


def waits(lake: Lake, landing: Landing, day: date) -> bool:
    """Whether files of a day are there, and wait until it is over.

    Args:
        lake: whose landing zone.
        landing: the source.
        day: the arrival day.
    """
    return day > newest_arrival(landing, present()) and bool(landing_files(lake.settings.root, landing, day, day))


def newest_arrival(landing: Landing, now: datetime) -> date:
    """The newest arrival day whose files are built by now: today where they come `during_day`, else yesterday."""
    return now.date() if landing.during_day else newest_day(None, now)


def present() -> datetime:
    """The present time, by which a build decides what is open."""
    return datetime.now(UTC)


def newest_closed(lake: Lake, now: datetime) -> list[date]:
    """The newest day that is closed where no topic brings rows, then of each topic: where one moves on, a day closes.

    Args:
        lake: where the tables are.
        now: the moment, with a time zone.
    """
    topics = [(table, table.topic) for table in lake.tables.values() if table.topic is not None]
    reached = [min([now - topic.max_lag, *_behind(lake, table)]) for table, topic in topics]
    return [newest_day(None, moment) for moment in (now, *reached)]


def _behind(lake: Lake, table: Table) -> Iterator[datetime]:
    """Of each topic of a table whose messages wait, the event time that its watermark has reached."""
    for each in with_upstream(lake.tables, table):
        if each.topic is not None and (at := taken_until(lake.snapshot(each.id), each.topic.source)) is not None:
            yield datetime.fromtimestamp(at / 1e6, UTC)


def still_open(lake: Lake, table: Table, days: Iterable[date], now: datetime) -> set[date]:
    """Those of some days of a table that are open.

    Args:
        lake: where the tables are.
        table: whose days.
        days: of any age.
        now: a time of day decides.
    """
    # Once for all days: up to when nothing more is waited for.
    reached = [*(now - lag for lag in _lags(lake, table)), *_behind(lake, table)]
    return {day for day in days if reached and end_of(day) > min(reached)}


def come_to(lake: Lake, table: Table) -> datetime | None:
    """Up to which event time a table has all messages, where some wait for a later batch; None where none wait.

    Args:
        lake: where the tables are.
        table: whose days.
    """
    return min(_behind(lake, table), default=None)


def open_until(lake: Lake, table: Table, day: date, now: datetime) -> datetime | None:
    """Until when rows of a day are waited for: its end, UTC, and the time that messages have to be taken (`max_lag`).

    Where messages wait that may be of it, that is `datetime.max`: see `in_words`. None where the day is closed, and
    where all that could bring rows of it are batches, and none was ever taken.

    Args:
        lake: where the tables are.
        table: whose day.
        day: the daily partition.
        now: a time of day decides.
    """
    if not still_open(lake, table, [day], now):
        return None
    if (reached := come_to(lake, table)) is not None and reached < end_of(day):
        return _NOBODY_KNOWS
    return end_of(day) + max(_lags(lake, table))


def _lags(lake: Lake, table: Table) -> Iterator[timedelta]:
    """Of each source that brings rows to a table, how long after a day's end rows of it may come."""
    for each in with_upstream(lake.tables, table):
        # Of whole exports, too: their day is built from none of them before it is over.
        if each.landing is not None:
            yield timedelta()
        if has_begun(lake, each):
            yield each.topic.max_lag if each.topic else timedelta()


def in_words(until: datetime) -> str:
    """`until 2026-03-02 00:05 UTC`, or that messages are waited for.

    Args:
        until: as `open_until` has it.
    """
    return "until the messages that wait are taken" if until == _NOBODY_KNOWS else f"until {until:%Y-%m-%d %H:%M} UTC"


def has_messages(lake: Lake, table: Table) -> bool:
    """Whether messages were taken into a table, directly or not: what takes them builds it as they come.

    Args:
        lake: where the tables are.
        table: the table.
    """
    return any(each.topic is not None and has_begun(lake, each) for each in with_upstream(lake.tables, table))


def has_begun(lake: Lake, table: Table) -> bool:
    """Whether anything was ever taken into a table that takes batches.

    Args:
        lake: where the tables are.
        table: with `taken`.
    """
    return table.taken is not None and batch_of(lake.snapshot(table.id), table.taken.source) > 0


def passed(day: date, now: datetime, reached: datetime | None) -> timedelta:
    """How much of a day has passed for a table: up to now, or up to what was taken of a stream that is behind.

    Args:
        day: the daily partition.
        now: the moment, with a time zone.
        reached: what `come_to` says of the table.
    """
    return min(now, reached or now) - start_of(day)


def is_reached(day: date, reached: datetime | None) -> bool:
    """Whether all topics of a table that are behind have come to a day; where none is behind, it is.

    Args:
        day: the daily partition.
        reached: what `come_to` says of the table.
    """
    return reached is None or reached > start_of(day)


def rows_so_far(lake: Lake, table: Table, days: Iterable[date], elapsed: timedelta) -> dict[date, int]:
    """How many rows days that are over had when so much of them had passed, of those that were built by then.

    Args:
        lake: where the tables are.
        table: whose days.
        days: days that are over.
        elapsed: time since the beginning of a day.
    """
    kept = lake.snapshot(table.id).table_id
    found = {}
    for day in days:
        before = [rows for at, rows in _course(lake.settings.root, table.id, kept, day) if at <= elapsed]
        if before:
            found[day] = before[-1]
    return found


@lru_cache(maxsize=1024)  # some days of each table for each open day, and all of them at every turn
def _course(root: Path, table: str, table_id: str | None, day: date) -> tuple[tuple[timedelta, int], ...]:
    """How many rows a day had from when on, as it was built: kept, since a stream asks at every turn."""
    del table_id  # a table that was made anew has days of its own
    return tuple((each.at - start_of(day), each.rows) for each in records(root, table, [day], figures=("rows",)))
