"""Which rows are in quarantine, since when and how often they failed: kept by row, told without reading the rows.

A quarantine's day is replaced whole at each build, so its rows cannot carry their past. After each commit the numbers
that identify its rows are therefore projected into `ops.quarantine_failures`, one record for each day that the commit
changed: no Spark job, a few columns of the files just written. The last projected version is the application
transaction, so that a crash in between loses and doubles nothing, and what is not projected yet is read from the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from lakehouse.contracts import Table
from lakehouse.delta.commit import ensure_table
from lakehouse.delta.files import DataFile, as_date
from lakehouse.delta.log import LogEntry, entries, first_entry, read_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.staged import FAILED_RULES
from lakehouse.errors import PublishConflictError
from lakehouse.lazy import T
from lakehouse.read.lake import table_path
from lakehouse.records.identity import identified, in_parts
from lakehouse.records.ledger import Rules, Wanted, discarded
from lakehouse.records.ops import MOST_TRIES, TABLE_ID, add_rows, ops_target, position, position_name, rows_about

FAILURES = "ops.quarantine_failures"
MOST_BEHIND = 30  # a position is a commit of its own: rare enough to cost nothing, and few entries are read twice


@lru_cache(maxsize=1)
def schema() -> T.StructType:
    """The columns of the records."""
    text, long = T.StringType(), T.LongType()
    return T.StructType(
        [
            T.StructField("table", text),
            T.StructField("day", T.DateType(), metadata={"comment": "Daily partition"}),
            T.StructField("version", long, metadata={"comment": "Delta version of the quarantine"}),
            T.StructField("at", T.TimestampType()),
            T.StructField("run_id", text),
            T.StructField("code_version", text),
            T.StructField("judged", T.BooleanType(), metadata={"comment": "False for a restore"}),
            T.StructField(
                "rows",
                T.MapType(text, T.ArrayType(long)),
                metadata={"comment": "Rows by broken rules, comma-separated"},
            ),
            T.StructField("added", T.BooleanType(), metadata={"comment": "Rows that came to those that were there"}),
            T.StructField(
                TABLE_ID, text, metadata={"comment": "Id of the Delta table: another, where it was built anew"}
            ),
        ]
    )


@dataclass(frozen=True)
class QuarantineRecord:
    """What one commit left in the quarantine of one day: rows by the rules they broke.

    Where it took none away, they are those that it `added`: a stream commits every second, and would else repeat all of
    a day's rows in each record.
    """

    day: date
    version: int
    at: datetime
    run_id: str
    code_version: str
    judged: bool
    rows: Mapping[Rules, Sequence[int]]
    added: bool = False


@dataclass(slots=True)  # there may be millions, and without them each takes half as much again
class QuarantinedRow:
    """One row in quarantine.

    Attributes:
        row: a number that identifies it within its day, see `identified`.
        rules: every rule it broke.
        first, last: when it was first and last found to break rules.
        times: how often that was; the first time is no retry.
        code_version: of the code that judged it last.
    """

    day: date
    row: int
    rules: Rules
    first: datetime
    last: datetime
    times: int
    code_version: str
    discarded: bool = False

    def fits(self, wanted: Wanted) -> bool:
        """Whether the row is among those meant."""
        return (
            (wanted.rule is None or wanted.rule in self.rules)
            and wanted.day in (None, self.day)
            and wanted.code_version in (None, self.code_version)
        )


def quarantined_rows(root: Path, table: Table, days: Collection[date] | None = None) -> list[QuarantinedRow]:
    """The rows in a table's quarantine, discarded ones included and marked, by day.

    Args:
        root: of the lakehouse.
        table: whose quarantine.
        days: only these; None: all.
    """
    projected = open_snapshot(table_path(root, FAILURES))  # before the quarantine: what it lacks, that one's log has
    side = open_snapshot(table_path(root, table.quarantine_id))
    return rows_left(root, table, records_of(projected, side, table, days))


def rows_left(root: Path, table: Table, records: Iterable[QuarantineRecord]) -> list[QuarantinedRow]:
    """As `quarantined_rows`, from all records of the days that are meant."""
    by_day: dict[date, list[QuarantineRecord]] = {}
    for record in records:
        by_day.setdefault(record.day, []).append(record)
    # A decision outlives rebuilds: it names rows by their numbers, not by their files.
    decided = discarded(root, table.id)
    found: list[QuarantinedRow] = []
    for day, kept in sorted(by_day.items()):
        by_row: dict[int, list[QuarantinedRow]] = {}  # rows that nothing tells apart share a number
        newest_first = sorted(kept, key=lambda each: each.version, reverse=True)
        for record in newest_first:
            for rules, rows in record.rows.items():
                for row in rows:
                    each = QuarantinedRow(day, row, rules, record.at, record.at, 0, record.code_version)
                    each.discarded = frozenset(rules) <= decided.get((day, row), frozenset())
                    by_row.setdefault(row, []).append(each)
            if not record.added:
                break  # older ones speak of what is there no more, or is named by this one
        for record in newest_first:
            _add_past(by_row, record)
        found += [each for rows in by_row.values() for each in rows]
    return found


def _add_past(by_row: Mapping[int, Sequence[QuarantinedRow]], record: QuarantineRecord) -> None:
    """Take in an older record; the newest that judged comes first."""
    for row in {row for rows in record.rows.values() for row in rows} & by_row.keys():
        for each in by_row[row]:
            each.first = min(each.first, record.at)
            if record.judged:
                if not each.times:
                    each.last, each.code_version = record.at, record.code_version
                each.times += 1


def project_quarantine(root: Path, table: Table, *, most_behind: int = MOST_BEHIND) -> int:
    """Append what the quarantine's log says beyond the last projection; returns how many records that were.

    Safe at any time and from any process: the same versions are never projected twice.

    Args:
        root: of the lakehouse.
        table: whose quarantine.
        most_behind: commits without a row in quarantine, before the projection says that it has seen them.
    """
    target = ops_target(root, FAILURES, schema(), "Rows that each commit left in quarantine, by day")
    side = open_snapshot(table_path(root, table.quarantine_id))
    for _ in range(MOST_TRIES):
        projected = ensure_table(target)
        done = position(projected, table.id, side)
        newer = _newer(side, table, done)
        # Nothing to say, and near enough: to write down the position alone would be a commit for each build.
        if not newer and side.version - (done or 0) < most_behind:
            return 0
        try:
            # One commit for rows and position; without rows too, or the same empty commits would be read each time.
            rows = [{**_row(each), TABLE_ID: side.table_id} for each in newer]
            add_rows(target, table.id, rows, {position_name(table.id, side): side.version}, after=projected)
        except PublishConflictError:
            continue  # another process projected some of them meanwhile
        return len(newer)
    return 0  # others project all the time; the next build goes on


def records_of(
    projected: Snapshot, side: Snapshot, table: Table, days: Collection[date] | None = None, after: int | None = None
) -> list[QuarantineRecord]:
    """Every record of a table's quarantine, whether it is projected yet or not, in no order.

    Args:
        projected: `ops.quarantine_failures`.
        side: the quarantine.
        table: its table's contract.
        days: only these; None: all.
        after: only of versions after this one of the quarantine; None: of all.
    """
    if not side.exists:
        return []
    known = [_record(row) for row in rows_about(projected, table.id, days, after=after, table_id=side.table_id)]
    newer = _newer(side, table, max(position(projected, table.id, side) or 0, after or 0))
    return [*known, *(each for each in newer if days is None or each.day in days)]


@dataclass(frozen=True)
class _Change:
    """What an entry did to a day: the files that it added, or, where it took some away, all that it left."""

    entry: LogEntry
    day: date
    files: Collection[DataFile]
    added: bool


def _newer(side: Snapshot, table: Table, done: int | None) -> list[QuarantineRecord]:
    """Records of the log's versions after `done`, the oldest first: one for each day whose files changed."""
    told: list[QuarantineRecord] = []
    whole: set[date] = set()  # days of which no older record is needed
    gone: set[date] = set()  # days that have rows of files that nobody can read any more
    for change in _changes(side, table, (done or 0) + 1):
        record = _of_change(table, side, change)
        told += [record] if record else []
        if record is None and change.day not in whole:
            gone.add(change.day)
        elif not change.added:
            whole.add(change.day)
    return _with_whole(table, side, sorted(told, key=lambda each: (each.version, each.day)), gone)


def _changes(side: Snapshot, table: Table, wanted: int) -> Iterator[_Change]:
    """What entries from a version on did to the rows of days, the newest first.

    What a version held is found from the newest one backwards, entry by entry: to open an older version takes as long
    as the table has files.
    """
    if wanted > side.version:
        return
    path, position = Path(side.uri), side.partition_by.index(table.day_column)
    first = first_entry(path, wanted)
    now = side.by_day(table.day_column)
    known: dict[date, dict[str, DataFile]] = {}  # of days that newer entries changed

    def files_of(day: date) -> dict[str, DataFile]:
        return known[day] if day in known else {file.path: file for file in now.get(day, ())}

    # Backwards in time from the newest state, which is in memory anyway.
    for entry in reversed(list(entries(path, first, side.version, side.partition_by))):
        by_day = _changed_by(entry, position)
        # Where entries were cleaned up before anybody projected them, the first that is left speaks for them.
        if entry.version == first > wanted:
            for day in {*by_day, *now, *known}:
                yield _Change(entry, day, files_of(day).values(), added=False)
        elif entry.changes_rows:
            for day, (came, went) in by_day.items():
                yield _Change(entry, day, (files_of(day) if went else came).values(), added=not went)
        # One step back in time: what the entry added was not there yet, what it removed still was.
        for day, (came, went) in by_day.items():
            known[day] = {name: file for name, file in files_of(day).items() if name not in came} | went


def _with_whole(
    table: Table, side: Snapshot, told: list[QuarantineRecord], gone: Collection[date]
) -> list[QuarantineRecord]:
    """The records, with one of all that is left of each day of which they do not tell all that came."""
    if not gone:
        return told
    newest, now = read_entry(Path(side.uri), side.version, side.partition_by), side.by_day(table.day_column)
    left = [_Change(newest, day, now.get(day, ()), added=False) for day in sorted(gone)]
    kept = [each for each in told if each.version < side.version or each.day not in gone]
    return [*kept, *(replace(each, judged=False) for change in left if (each := _of_change(table, side, change)))]


def _changed_by(entry: LogEntry, position: int) -> dict[date, tuple[dict[str, DataFile], dict[str, DataFile]]]:
    """The files that an entry added and removed, by day."""
    by_day: dict[date, tuple[dict[str, DataFile], dict[str, DataFile]]] = {}
    for side_of, files in enumerate((entry.added, entry.removed)):
        for name, file in files.items():
            if (day := as_date(file.partition[position])) is not None:
                by_day.setdefault(day, ({}, {}))[side_of][name] = file
    return by_day


def _of_change(table: Table, side: Snapshot, change: _Change) -> QuarantineRecord | None:
    """The record of a change; None where its files are not there any more."""
    entry = change.entry
    run_id = str(entry.facts.get("lakehouse.run_id", ""))
    judged = bool(run_id) and entry.facts.get("lakehouse.operation", "publish") == "publish"
    try:
        rows = _rows(table, side, change.files)
    except FileNotFoundError:  # of a version before the newest: a vacuum took them, and nobody can tell
        return None
    code = str(entry.facts.get("lakehouse.code_version", ""))
    return QuarantineRecord(change.day, entry.version, entry.time, run_id, code, judged, rows, change.added)


def _rows(table: Table, snapshot: Snapshot, files: Iterable[DataFile]) -> Mapping[Rules, Sequence[int]]:
    found: dict[Rules, array[int]] = {}
    for file in files:
        rows, ids = identified(table, snapshot, file, [FAILED_RULES])
        broken = chain.from_iterable(part[FAILED_RULES].to_pylist() for part in in_parts(rows))
        for rules, row in zip(broken, ids, strict=True):
            found.setdefault(tuple(rules or ()), array("q")).append(row)
    return found


def _row(record: QuarantineRecord) -> dict[str, Any]:
    rows = [(",".join(rules), list(ids)) for rules, ids in record.rows.items()]
    return {**record.__dict__, "rows": rows}


def _record(row: Mapping[str, Any]) -> QuarantineRecord:
    rows = {tuple(rules.split(",")) if rules else (): ids for rules, ids in row["rows"] or ()}
    return QuarantineRecord(
        row["day"],
        row["version"],
        row["at"].astimezone(UTC),
        row["run_id"],
        row["code_version"],
        row["judged"],
        rows,
        bool(row.get("added")),
    )
