"""What days are made from: the states of the days of its inputs that a table reads.

Every step looks at all days, every turn of a stream does, and nearly all days are as they were. So what was found of a
day is kept in the process, with the versions of the inputs that it was found from: a later look asks the logs which
days have changed since, and looks closer only at those that read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lakehouse.contracts import Input, Table
from lakehouse.days import days_around
from lakehouse.delta.files import DataFile, as_date
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.transactions import DAY_PREFIX, day_transaction
from lakehouse.read.content import CONTENT_PREFIX, content_of_day, content_of_days
from lakehouse.read.lake import Lake


class MadeFrom(NamedTuple):
    """What one day of a table is made from.

    Attributes:
        whole: a number over code and inputs.
        has_input: whether any input has rows of what it reads.
        beside: whether its neighbours have rows that may come before its own (`unique_within`).
        accepted: the last arrival date whose late rows were accepted.
    """

    whole: int
    has_input: bool
    beside: bool
    accepted: date | None


def kept(lake: Lake, table: Table, inputs: Mapping[str, Snapshot]) -> dict[date, MadeFrom]:
    """What was found before of some days of a table, and holds for these versions of its inputs; a dict of its own.

    Args:
        lake: where the tables are.
        table: whose days.
        inputs: by parameter.
    """
    found = next(iter(_place(lake.settings.root, table.id, table.code_version)), None)
    if found is None or found.tables != _tables(lake, table):
        return {}
    touched = set[date]()
    for name, each in table.upstream.items():
        days = _changed(lake.table(each.table), found.inputs[name], inputs[name])
        if days is None:
            return {}
        touched.update(reader for day in days for reader in touched_days(table, each, day))
    return {day: made for day, made in found.days.items() if day not in touched}


def keep(lake: Lake, table: Table, inputs: Mapping[str, Snapshot], days: Mapping[date, MadeFrom]) -> None:
    """Keep what was found of days from some versions of their inputs, for `kept`.

    Args:
        lake: where the tables are.
        table: whose days.
        inputs: by parameter.
        days: all that is known of them.
    """
    # Which hours are closed, the log says without naming the days: it would have to be compared as well.
    if all(each.hours_close_after is None for each in table.upstream.values()):
        place = _place(lake.settings.root, table.id, table.code_version)
        place[:] = [_Found(_tables(lake, table), dict(inputs), days)]


def forget_days() -> None:
    """Look at every day again when it is next asked for; for tests."""
    _place.cache_clear()


def touched_days(table: Table, each: Input, day: date) -> list[date]:
    """The days of a table that one day of an input may change.

    Args:
        table: what reads the input.
        each: the input.
        day: of the input.
    """
    unique = table.unique_days
    # By the window, which looks back from later days and ahead from earlier ones; and both ways by the span in which
    # keys are unique.
    return days_around(day, each.days_after + unique, each.days_before + unique)


@dataclass(frozen=True)
class _Found:
    tables: tuple[Table, ...]
    inputs: Mapping[str, Snapshot]
    days: Mapping[date, MadeFrom]


@lru_cache(maxsize=256)
def _place(_root: Path, _table: str, _code_version: str) -> list[_Found]:
    """One, or none yet; exchanged as a whole, since several threads may do so."""
    return []


def _tables(lake: Lake, table: Table) -> tuple[Table, ...]:
    return table, *(lake.table(each.table) for each in table.upstream.values())


def _changed(table: Table, before: Snapshot, after: Snapshot) -> set[date] | None:
    """The days of an input, as tables that read it see days, that may differ between two versions; None: not known."""
    if before is after or not (before.exists or after.exists):
        return set()
    named = _other_transactions(before, after)
    if named is None or before.table_id != after.table_id or before.partition_by != after.partition_by:
        return None
    column = table.content_day_column
    was, now = before.by_day(column), after.by_day(column)
    found = {day for day in was.keys() | now.keys() if was.get(day) != now.get(day)}
    for name in named:
        if name.startswith((DAY_PREFIX, CONTENT_PREFIX)):
            days = list(_days_of(table, after, name))
            if None in days:
                return None
            found.update(day for day in days if day)
    return found


def _other_transactions(before: Snapshot, after: Snapshot) -> set[str] | None:
    """The transactions that differ; None: they can be told one by one only."""
    was, now = before.known_transactions, after.known_transactions
    if was is None or now is None or not before.exists or not after.exists:
        return None
    return {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}


def _days_of(table: Table, snapshot: Snapshot, name: str) -> Iterator[date | None]:
    """The days that a transaction is about; None: it names none."""
    _, *texts = name.split("/")
    if name.startswith(CONTENT_PREFIX):
        yield as_date(texts[0])  # of one that tells the partition as well, the day comes first
        return
    own = as_date(texts[0])
    yield own
    if own is not None and table.content_day_column != table.day_column:
        seen = snapshot.partition_by.index(table.content_day_column)
        for file in snapshot.by_day(table.day_column).get(own, ()):
            if (day := as_date(file.partition[seen])) is not None:
                yield day


class DayStates:
    """What one version of an input holds for a day, as downstream tables see days."""

    def __init__(self, table: Table, snapshot: Snapshot) -> None:
        self._table, self._snapshot = table, snapshot
        # Other days' runs replace days of an upsert table; batches add to days of a table that takes them.
        self._by_file = table.upsert or table.taken is not None
        self._days_differ = table.content_day_column != table.day_column
        self._arrival = table.day_column
        columns = snapshot.partition_by
        self._own, self._seen = (
            columns.index(each) if columns else 0 for each in (table.day_column, table.content_day_column)
        )
        self._identities: dict[tuple[date, date | None], str] = {}
        self._files = snapshot.by_day(table.content_day_column)
        self.rows = snapshot.rows_by_day(table.content_day_column)

    def arrives_by(self, column: str) -> bool:
        """Whether the log says of each row's `column`, a date, when it arrived."""
        return self._days_differ and not self._table.upsert and self._arrival == column

    def arrivals(self, day: date) -> set[str]:
        """The input's own partitions that hold rows of the day."""
        return {f.partition[0] or "" for f in self._files.get(day, [])}

    def identity(self, day: date, through: date | None = None) -> str:
        """Of the partitions that hold rows of the day: what they were made from, and which rows they are.

        Args:
            day: the event day.
            through: only of arrivals up to this day; None: of all.
        """
        key = day, through
        if key not in self._identities:  # a window asks for each day several times, and the log takes a millisecond
            self._identities[key] = self._identity(day, through)
        return self._identities[key]

    def _identity(self, day: date, through: date | None) -> str:
        parts: dict[str, list[str]] = {}
        for file in self._files.get(day, []):
            if self._had_arrived(file, through):
                own = file.partition[self._own]
                made_from = None if self._by_file else self._snapshot.transaction(f"{DAY_PREFIX}{own}")
                parts.setdefault(f"{own}:{made_from}", []).append(self._rows_of(file))
        if not parts and not self._by_file and not self._days_differ:
            # A day without files is told by its transaction alone: published empty is another state than never built.
            return str(self._snapshot.transaction(day_transaction(day)))  # published without rows, or not at all
        return ",".join(f"{own}:{'+'.join(sorted(set(rows)))}" for own, rows in sorted(parts.items()))

    def _had_arrived(self, file: DataFile, through: date | None) -> bool:
        return not self._days_differ or through is None or (file.partition[self._own] or "") <= through.isoformat()

    def _rows_of(self, file: DataFile) -> str:
        """The number over a partition's rows; not over its files, or a compaction would make the day stale.

        What was committed before there were such numbers is known by what it was made from, or by its files.
        """
        own, seen = file.partition[self._own], file.partition[self._seen]
        name = content_of_days(own, seen) if self._days_differ else content_of_day(own)
        number = self._snapshot.transaction(name) if name else None
        unknown = file.first_name if self._by_file else None
        return str(unknown if number is None else number)
