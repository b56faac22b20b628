"""How days of a live table stand to its candidate: changed since its own were built, or not in it at all."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.delta.log import days_of, entries, snapshot_at
from lakehouse.delta.snapshot import Snapshot

if TYPE_CHECKING:
    from lakehouse.versions.candidate import Candidate


def days_alone(live: Snapshot, candidate: Candidate) -> list[date]:
    """The days that the live table alone has, in order."""
    return sorted(set(live.by_day(candidate.table.day_column)) - set(candidate.beside))


def overtaken_days(live: Snapshot, candidate: Candidate) -> list[date]:
    """The candidate's days that have changed in the live table since they were built, in order.

    A live day that is as it was then, or holds the candidate's own files, has not; merging files is no change.
    """
    column, path = candidate.table.day_column, Path(live.uri)
    now, own = _names_by_day(live, column), _names_by_day(candidate.main, column)
    # Where its folder was moved away, the live table's versions began at 0 again and say nothing of a candidate's days.
    anew = {day for day, known in candidate.beside_ids.items() if known not in ("", str(live.table_id))}
    changed = {day for day in anew if now.get(day) != own.get(day)}
    for version in sorted({v for day, v in candidate.beside.items() if day not in anew}):
        then = _names_by_day(snapshot_at(path, version), column)
        days = {d for d, v in candidate.beside.items() if v == version and d not in anew}
        # Days whose files are as they were then, or are the candidate's own after an earlier swap, are not overtaken.
        days = {d for d in days if now.get(d) != then.get(d) and now.get(d) != own.get(d)}
        if not days:
            continue
        for entry in entries(path, version + 1, live.version, live.partition_by):
            if entry.changes_rows:
                changed |= days & days_of([*entry.added.values(), *entry.removed.values()])
    return sorted(changed)


def _names_by_day(snapshot: Snapshot, column: str) -> dict[date, frozenset[str]]:
    return {day: frozenset(f.first_name for f in files) for day, files in snapshot.by_day(column).items()}
