"""How much waits in a quarantine, kept by day: a build looks at the days that changed since, not at every row again.

A cache, not a part of the table: it says of which tables and versions it was made, and may be removed at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.read.lake import table_path
from lakehouse.records.failures import FAILURES, Depth, QuarantinedRow, depth_of, failures, unprojected_days
from lakehouse.records.ledger import LEDGER
from lakehouse.records.ops import rows_about

_FORM = "since by rule"  # what is kept of a day: a file of another form is made anew


@dataclass(frozen=True)
class _Kept:
    """Depth by day, as it was at a version of the quarantine and of what people decided."""

    made_of: list[str]
    projected: int
    days: Mapping[str, Mapping[str, Any]]


def depth_now(root: Path, table: Table, at: datetime) -> Depth:
    """A quarantine as a whole at a moment.

    Args:
        root: of the lakehouse.
        table: whose quarantine; it has row rules.
        at: the moment.
    """
    projected = open_snapshot(table_path(root, FAILURES))
    side = open_snapshot(table_path(root, table.quarantine_id))
    if not side.exists:
        return depth_of((), at)
    # By the tables' ids and the ledger's version: a table that was built anew, or a decision, makes all of it count
    # again.
    made_of = [_name(side), _name(projected), str(open_snapshot(table_path(root, LEDGER)).version), _FORM]
    done = projected.transaction(table.id) or 0
    path = root / "cache" / "quarantine" / f"{table.id}.json"
    kept = _read(path)
    waiting = unprojected_days(side, table, done)
    # Kept by day, so that as a rule only the days of newer commits are counted.
    if kept is None or kept.made_of != made_of or kept.projected > done:
        days = _by_day(failures(root, table))
    else:
        known = rows_about(projected, table.id, columns=("day", "version")) if kept.projected < done else ()
        changed = {row["day"] for row in known if row["version"] > kept.projected} | waiting
        days = _carried_on(root, table, kept, changed)
    # Written only where everything is projected: what is kept must be true of one position.
    if not waiting and (kept is None or (kept.made_of, kept.projected) != (made_of, done)):
        _write(path, _Kept(made_of, done, days))
    return _sum(days, at)


def _carried_on(root: Path, table: Table, kept: _Kept, changed: Collection[date]) -> dict[str, Mapping[str, Any]]:
    """What is kept, with the days that have changed since counted anew."""
    days = {day: each for day, each in kept.days.items() if date.fromisoformat(day) not in changed}
    return days | (_by_day(failures(root, table, changed)) if changed else {})


def _name(snapshot: Snapshot) -> str:
    return str(snapshot.metadata.id) if snapshot.metadata else "none"


def _by_day(found: list[QuarantinedRow]) -> dict[str, Mapping[str, Any]]:
    by_day: dict[date, list[QuarantinedRow]] = {}
    for each in found:
        by_day.setdefault(each.day, []).append(each)
    days: dict[str, Mapping[str, Any]] = {}
    for day, rows in by_day.items():
        depth = depth_of(rows, rows[0].last)
        oldest = depth.oldest.isoformat() if depth.oldest else None
        days[day.isoformat()] = {
            "rows": depth.rows, "discarded": depth.discarded, "by_rule": dict(depth.by_rule), "oldest": oldest,
            "since": {rule: first.isoformat() for rule, first in depth.since.items()},
        }  # fmt: skip
    return days


def _sum(days: Mapping[str, Mapping[str, Any]], at: datetime) -> Depth:
    by_rule: Counter[str] = Counter()
    for each in days.values():
        by_rule.update(each["by_rule"])
    oldest = [datetime.fromisoformat(each["oldest"]) for each in days.values() if each["oldest"]]
    since: dict[str, datetime] = {}
    for rule, text in ((rule, text) for each in days.values() for rule, text in each["since"].items()):
        first = datetime.fromisoformat(text)
        since[rule] = min(since.get(rule, first), first)
    return Depth(
        at,
        sum(each["rows"] for each in days.values()),
        sum(each["discarded"] for each in days.values()),
        by_rule,
        min(oldest, default=None),
        since,
    )


def _read(path: Path) -> _Kept | None:
    try:
        return _Kept(**json.loads(store.read_text(path)))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, kept: _Kept) -> None:
    """Killed anywhere, or written by two at once, it is one of them or not there."""
    with suppress(OSError):  # where nothing can be written, all days are counted each time
        store.put(path, json.dumps(kept.__dict__))
