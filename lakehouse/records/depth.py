"""How much waits in a quarantine, kept by day: a build looks at the days that changed since, not at every row again.

A cache, not a part of the table: it says of which tables and versions it was made, and may be removed at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.delta.snapshot import Snapshot
from lakehouse.read.lake import table_path
from lakehouse.records.failures import (
    FAILURES,
    QuarantinedRow,
    QuarantineRecord,
    records_of,
    rows_left,
    unprojected_days,
)
from lakehouse.records.ledger import LEDGER

DEPTH_CHECK = "quarantine_depth"
_FORM = "what was only added"  # what is kept of a day: a file of another form is made anew


@dataclass
class Depth:
    """A quarantine as a whole at a moment: rows by rule (a row counts for each it broke), the oldest first failures."""

    at: datetime
    rows: int = 0
    discarded: int = 0
    by_rule: Counter[str] = field(default_factory=Counter)
    oldest: datetime | None = None
    since: dict[str, datetime] = field(default_factory=dict)  # by rule

    @property
    def age(self) -> timedelta:
        """Since the oldest first failure."""
        return self.at - self.oldest if self.oldest else timedelta(0)


def depth_of(found: Iterable[QuarantinedRow], at: datetime) -> Depth:
    """Rows, rules and age of a quarantine; discarded rows count apart."""
    depth = Depth(at)
    for each in found:
        if each.discarded:
            depth.discarded += 1
            continue
        depth.rows += 1
        depth.by_rule.update(each.rules)
        depth.oldest = min(depth.oldest or each.first, each.first)
        for rule in each.rules:
            depth.since[rule] = min(depth.since.get(rule, each.first), each.first)
    return depth


def judge_depth(table: Table, depth: Depth) -> tuple[bool, str]:
    """Whether the quarantine is within the contract's bounds, and what is in it in words."""
    rows, age = table.quarantine.max_rows, table.quarantine.max_age
    ages = {rule: (depth.at - depth.since[rule], most) for rule, most in table.quarantine.max_ages.items()
            if rule in depth.since}  # fmt: skip
    overdue = [f"{rule} {_days(since)} (at most {_days(most)})" for rule, (since, most) in ages.items() if since > most]
    passed = (rows is None or depth.rows <= rows) and (age is None or depth.age <= age) and not overdue
    if not depth.rows:
        return passed, "no row in quarantine"
    most = f" (at most {rows:,})" if rows is not None else ""
    longest = f" (at most {_days(age)})" if age is not None else ""
    since = f"{depth.oldest:%Y-%m-%d %H:%M} UTC" if depth.oldest else "?"
    by_rule = ", ".join(f"{name} {number:,}" for name, number in depth.by_rule.most_common())
    by_rule += f"; unresolved for too long: {', '.join(overdue)}" if overdue else ""
    return passed, (
        f"{depth.rows:,} rows in quarantine{most}, the oldest since {since}, {_days(depth.age)}{longest}: {by_rule}. "
        f"Look at them: lakehouse quarantine show {table.id}; then mend the cause and replay them, or discard them"
    )


def _days(age: timedelta) -> str:
    return f"{age / timedelta(days=1):.1f} days"


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
    # Kept by day, so that as a rule only what newer commits added is counted.
    if kept is None or kept.made_of != made_of or kept.projected > done:
        days = _counted(root, table, records_of(projected, side, table))
    else:
        days = dict(kept.days)
        newer = records_of(projected, side, table, after=kept.projected)
        if anew := _carry_on(root, table, days, newer):
            days |= _counted(root, table, records_of(projected, side, table, anew))
    # Written only where everything is projected: what is kept must be true of one position.
    if not waiting and (kept is None or (kept.made_of, kept.projected) != (made_of, done)):
        _write(path, _Kept(made_of, done, days))
    return _sum(days, at)


def _carry_on(
    root: Path, table: Table, days: dict[str, Mapping[str, Any]], newer: Collection[QuarantineRecord]
) -> set[date]:
    """Add what came to the days to which rows were only added; returns the others, which are to be counted anew."""
    anew = {each.day for each in newer if not each.added}
    anew |= {each.day for each in newer if not days.get(each.day.isoformat(), {"only_added": True})["only_added"]}
    for day, came in _counted(root, table, [each for each in newer if each.day not in anew]).items():
        days[day] = _both(days[day], came) if day in days else came
    return anew


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two parts of a day's rows as one; moments are texts that sort by time."""
    oldest = [each["oldest"] for each in (one, other) if each["oldest"]]
    rules = one["since"].keys() | other["since"].keys()
    return {
        **{name: one[name] + other[name] for name in ("rows", "discarded")},
        "by_rule": dict(Counter(one["by_rule"]) + Counter(other["by_rule"])),
        "oldest": min(oldest, default=None),
        "since": {rule: min(each["since"][rule] for each in (one, other) if rule in each["since"]) for rule in rules},
        "only_added": True,
    }


def _name(snapshot: Snapshot) -> str:
    return str(snapshot.metadata.id) if snapshot.metadata else "none"


def _counted(root: Path, table: Table, records: Collection[QuarantineRecord]) -> dict[str, Mapping[str, Any]]:
    """What is kept of the days that records are of."""
    if not records:
        return {}
    by_day: dict[date, list[QuarantinedRow]] = {each.day: [] for each in records}
    replaced = {each.day for each in records if not each.added}
    for each in rows_left(root, table, records):
        by_day[each.day].append(each)
    days: dict[str, Mapping[str, Any]] = {}
    for day, rows in by_day.items():
        depth = depth_of(rows, datetime.max.replace(tzinfo=UTC))
        days[day.isoformat()] = {
            "rows": depth.rows, "discarded": depth.discarded, "by_rule": dict(depth.by_rule),
            "oldest": _text(depth.oldest) if depth.oldest else None,
            "since": {rule: _text(first) for rule, first in depth.since.items()}, "only_added": day not in replaced,
        }  # fmt: skip
    return days


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


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
