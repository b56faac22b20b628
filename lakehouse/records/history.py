"""The history of metrics: one record for each day that a commit published, keyed by table, day and Delta version.

Figures are written into the commit that publishes them, so they are as true as the data. From there they are projected
into one Delta table, `ops.partition_metrics`, that checks and people read without touching data: appended with the last
projected version as its application transaction, so that a crash in between loses and doubles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from lakehouse.delta.commit import ensure_table
from lakehouse.delta.log import LogEntry, entries, first_entry
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.delta.target import Target
from lakehouse.errors import PublishConflictError
from lakehouse.read.lake import table_path
from lakehouse.records.day_record import EXACT_SUMS, DayRecord, record_of, row_of, schema
from lakehouse.records.ops import (
    MOST_FILES,
    MOST_TRIES,
    add_rows,
    newest_about,
    ops_target,
    position,
    position_name,
    rows_about,
)

HISTORY = "ops.partition_metrics"
UNPUBLISHED_CHECKS = "lakehouse.judged"  # of a commit: by day that was not published, the checks that failed

OF_JUDGEMENTS = ("checks", "tried")  # figures that say how checks stand
CHECKS_ONLY = "judge"
"""Operation of a record that says what the checks found on a day which was not published."""
RESTORE = "restore"
"""Operation of a record of which rows came back; `tried` says what else the day could have been made from by then."""
_SAME_ROWS = (RESTORE, "forget")  # operations that bring rows back or take some away, and judge none
_FACTS = ("day", "version", "published_at", "run_id", "code_version", "operation")


def records(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] | None = None
) -> list[DayRecord]:
    """Every record of what a table published, oldest commit first: the projected ones, and the log for what came after.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
        figures: what is needed of the figures; None: all, which is most of what there is to read.
    """
    return [each for each in all_records(root, table, days, figures) if each.operation != CHECKS_ONLY]


def all_records(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] | None = None
) -> list[DayRecord]:
    """As `records`, with those of builds that published nothing (`CHECKS_ONLY`), which `judged_by` asks for."""
    projected, newer = _all(root, table, days, _columns(figures))
    return sorted([*(record_of(table, row) for row in projected), *newer], key=lambda each: (each.version, each.day))


def judgements(
    root: Path, table: str, days: Collection[date] | None = None, figures: Sequence[str] = OF_JUDGEMENTS
) -> dict[date, DayRecord]:
    """The record of each day that says how its checks stand: the newest build, published or not.

    A day whose newest build was not published stands by that one: restoring older rows does not fix its input.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
        figures: what is needed of the figures.
    """
    projected, newer = _newest(root, table, days, (*_FACTS, *figures))
    return judged_by(sorted([*(record_of(table, row) for row in projected), *newer], key=lambda each: each.version))


def judged_by(everything: Iterable[DayRecord]) -> dict[date, DayRecord]:
    """What `judgements` says, from all records of a table, oldest commit first."""
    found: dict[date, DayRecord] = {}
    for each in everything:
        before = found.get(each.day)
        # A restore brings rows back and judges none: what the newest build found of the day's input goes on being true.
        if each.operation not in _SAME_ROWS or before is None or before.operation != CHECKS_ONLY:
            found[each.day] = each
    return found


def latest_records(
    root: Path,
    table: str,
    days: Collection[date] | None = None,
    figures: Sequence[str] | None = None,
    up_to: int | None = None,
) -> dict[date, DayRecord]:
    """The newest record of each day: what readers see now, or saw at a version.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        days: only these; None: all.
        figures: what is needed of the figures; None: all.
        up_to: the version; None: the newest.
    """
    projected, newer = _newest(root, table, days, _columns(figures), up_to)
    known = [record_of(table, row) for row in projected if row["operation"] != CHECKS_ONLY]
    known += [each for each in newer if each.operation != CHECKS_ONLY]
    return {each.day: each for each in sorted(known, key=lambda each: each.version)}


def older_code(root: Path, table: str, current: str, days: Collection[date] | None = None) -> dict[str, list[date]]:
    """The published days that code other than the current one built, by code version, the newest of them first.

    Args:
        root: of the lakehouse.
        table: `layer.name`.
        current: the code version that is not older.
        days: only these; None: all.
    """
    # Without the figures, which would be most of what there is to read.
    projected, newer = _newest(root, table, days, ("day", "version", "code_version", "operation"))
    built = [
        (int(row["version"]), row["day"], str(row["code_version"]))
        for row in projected
        if row["operation"] != CHECKS_ONLY
    ]
    built += [(each.version, each.day, each.code_version) for each in newer if each.operation != CHECKS_ONLY]
    # Sorted by version, so that of each day the last one stays.
    newest = {day: (version, code) for version, day, code in sorted(built)}
    found: dict[str, list[date]] = {}
    for day, (_, code) in sorted(newest.items(), key=lambda each: (-each[1][0], each[0])):
        if code != current:
            found.setdefault(code, []).append(day)
    return found


def _columns(figures: Sequence[str] | None) -> Sequence[str] | None:
    """What is read of the rows of records, for these of their figures."""
    if figures is None:
        return None
    return (*_FACTS, *figures, *((EXACT_SUMS,) if {"profile", "figures"} & set(figures) else ()))


def _newest(
    root: Path, table: str, days: Collection[date] | None, columns: Sequence[str] | None, up_to: int | None = None
) -> tuple[Iterable[dict[str, Any]], list[DayRecord]]:
    """As `_all`, but of what is projected hardly more than the newest of each day and operation (`newest_about`)."""
    projected, table_id, newer = _projection_and_newer(root, table, days)
    known = [each for each in newer if up_to is None or each.version <= up_to]
    return (() if table_id is None else newest_about(projected, table, table_id, days, columns, up_to)), known


def _all(
    root: Path, table: str, days: Collection[date] | None, columns: Sequence[str] | None
) -> tuple[Iterable[dict[str, Any]], list[DayRecord]]:
    """What a table's builds said: projected rows, with some columns or all, and records that only its log has yet."""
    projected, table_id, newer = _projection_and_newer(root, table, days)
    return (() if table_id is None else rows_about(projected, table, days, columns, table_id=table_id)), newer


def _projection_and_newer(
    root: Path, table: str, days: Collection[date] | None
) -> tuple[Snapshot, str | None, list[DayRecord]]:
    """The projection, the id of the table's log, and what only that log says."""
    projected, wanted = open_snapshot(table_path(root, HISTORY)), None if days is None else set(days)
    now = open_snapshot(table_path(root, table))
    # What a killed run has committed and not projected is read from the table's own log, so nothing is missing
    # meanwhile.
    newer = _records_after(now, table, position(projected, table, now))
    return projected, now.table_id, [each for each in newer if wanted is None or each.day in wanted]


def project_history(root: Path, snapshot: Snapshot, table: str, *, most_files: int = MOST_FILES) -> int:
    """Append what the table's log says beyond the last projection; returns how many records that were.

    Safe at any time and from any process: the same versions are never projected twice.

    Args:
        root: of the lakehouse.
        snapshot: the table at the version up to which its log is read.
        table: `layer.name`.
        most_files: of the table's part of the history; from so many on they are merged.
    """
    target = _target(root)
    for _ in range(MOST_TRIES):
        base = ensure_table(target)
        newer = _records_after(snapshot, table, position(base, table, snapshot))
        if not newer:
            return 0
        try:
            # Rows and the version they go up to are one commit: killed before it nothing is kept, after it all is.
            up_to = {position_name(table, snapshot): snapshot.version}
            rows = [row_of(each, snapshot.table_id) for each in newer]
            add_rows(target, table, rows, up_to, after=base, most_files=most_files)
        except PublishConflictError:
            continue  # another process projected some of them meanwhile
        return len(newer)
    return 0  # others project all the time; what is left is read from the log


def _target(root: Path) -> Target:
    return ops_target(root, HISTORY, schema(), "What each commit published, by day")


def _records_after(snapshot: Snapshot, table: str, done: int | None) -> list[DayRecord]:
    """Records of the log's versions after `done`, up to the snapshot's."""
    wanted, path = (done or 0) + 1, Path(snapshot.uri)
    if wanted > snapshot.version:
        return []
    # Entries that were cleaned up before anybody projected them are lost to the history, not to the table.
    first = first_entry(path, wanted)
    # Not delta-rs's history: of a snapshot that is not the newest any more it numbers the entries wrongly.
    newer = entries(path, first, snapshot.version, snapshot.partition_by)
    return [record for entry in newer for record in _of_commit(table, entry)]


def _of_commit(table: str, entry: LogEntry) -> Iterable[DayRecord]:
    operation = str(entry.facts.get("lakehouse.operation", "publish"))
    told = [(day, operation, figures) for day, figures in entry.figures.items()]
    told += [(day, CHECKS_ONLY, figures) for day, figures in _loaded(entry.facts.get(UNPUBLISHED_CHECKS)).items()]
    for day, kind, figures in told:
        yield DayRecord(
            table,
            date.fromisoformat(day),
            entry.version,
            entry.time,
            str(entry.facts.get("lakehouse.run_id", "")),
            str(figures.get("code_version") or entry.facts.get("lakehouse.code_version", "")),
            kind,
            _loaded(entry.facts.get("lakehouse.inputs")),
            figures,
        )


def _loaded(value: Any) -> dict[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}
