"""How much waits in a quarantine, kept by day: a build looks at the days that changed since, not at every row again.

A cache, not a part of the table: it says of which tables and versions it was made, and may be removed at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.delta.opening import open_snapshot
from lakehouse.read.lake import table_path
from lakehouse.records.ledger import LEDGER
from lakehouse.records.ops import position
from lakehouse.records.quarantined import (
    FAILURES,
    QuarantinedRow,
    QuarantineRecord,
    records_of,
    rows_left,
)
from lakehouse.texts import counted

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


def _together(depths: Iterable[Depth], at: datetime) -> Depth:
    """Several parts of a quarantine as one."""
    whole = Depth(at)
    for each in depths:
        whole.rows += each.rows
        whole.discarded += each.discarded
        whole.by_rule += each.by_rule
        whole.oldest = min(filter(None, (whole.oldest, each.oldest)), default=None)
        for rule, first in each.since.items():
            whole.since[rule] = min(whole.since.get(rule, first), first)
    return whole


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
        f"{counted(depth.rows, 'row')} in quarantine{most}, "
        f"the oldest since {since}, {_days(depth.age)}{longest}: {by_rule}. "
        f"Look at them: lakehouse quarantine show {table.id}; then fix the cause and replay them, or discard them"
    )


def _days(age: timedelta) -> str:
    return f"{age / timedelta(days=1):.1f} days"


@dataclass(frozen=True)
class _Day:
    """The depth of one day, and whether rows were only ever added to it: then what comes is added to what is known."""

    depth: Depth
    only_added: bool


@dataclass(frozen=True)
class _Kept:
    """Depth by day, as it was at a version of the quarantine and of what people decided."""

    made_of: list[str]
    projected: int
    days: Mapping[date, _Day]


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
    made_of = [str(side.table_id), str(projected.table_id), str(open_snapshot(table_path(root, LEDGER)).version), _FORM]
    done = position(projected, table.id, side) or 0
    path = root / "cache" / "quarantine" / f"{table.id}.json"
    kept = _read(path, made_of, done)
    days = dict(kept.days)
    # Kept by day, so that as a rule only what newer commits added is counted.
    newer = records_of(projected, side, table, after=kept.projected)
    anew = {each.day for each in newer if each.day in days and not (each.added and days[each.day].only_added)}
    for day, came in _counted(root, table, [each for each in newer if each.day not in anew], at).items():
        there = [days[day].depth] if day in days else []
        days[day] = _Day(_together([*there, came.depth], at), came.only_added)
    if anew:
        days |= _counted(root, table, records_of(projected, side, table, anew), at)
    # Written only where everything is projected: what is kept must be true of one position.
    if kept.projected != done and all(each.version <= done for each in newer):
        _write(path, _Kept(made_of, done, days))
    return _together((each.depth for each in days.values()), at)


def _counted(root: Path, table: Table, records: Collection[QuarantineRecord], at: datetime) -> dict[date, _Day]:
    """What is kept of the days that records are of."""
    if not records:
        return {}
    by_day: dict[date, list[QuarantinedRow]] = {each.day: [] for each in records}
    replaced = {each.day for each in records if not each.added}
    for each in rows_left(root, table, records):
        by_day[each.day].append(each)
    return {day: _Day(depth_of(rows, at), day not in replaced) for day, rows in by_day.items()}


def _read(path: Path, made_of: list[str], done: int) -> _Kept:
    """What is kept, where it is of these tables and of no later position; else nothing, of none."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        told = json.loads(store.read_text(path))
        days = {date.fromisoformat(day): _day_of(each) for day, each in told.pop("days").items()}
        kept = _Kept(days=days, **told)
        if kept.made_of == made_of and kept.projected <= done:
            return kept
    return _Kept(made_of, -1, {})


def _day_of(told: Mapping[str, Any]) -> _Day:
    moment = datetime.fromisoformat
    oldest = moment(told["oldest"]) if told["oldest"] else None
    since = {rule: moment(first) for rule, first in told["since"].items()}
    depth = Depth(moment(told["at"]), told["rows"], told["discarded"], Counter(told["by_rule"]), oldest, since)
    return _Day(depth, told["only_added"])


def _write(path: Path, kept: _Kept) -> None:
    """Killed anywhere, or written by two at once, it is one of them or not there."""
    days = {day.isoformat(): {**vars(each.depth), "only_added": each.only_added} for day, each in kept.days.items()}
    text = json.dumps({**vars(kept), "days": days}, default=lambda moment: moment.isoformat())
    with suppress(OSError):  # where nothing can be written, all days are counted each time
        store.put(path, text)
