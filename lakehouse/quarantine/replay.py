"""Replay of quarantined rows: their days are built and published again, and what became of each row is told.

A rebuilt day is what any build of it gives, so a replay cannot differ from a rebuild. A day whose inputs and code are
those its rows were judged by would come out the same, so it is left alone and a second replay does nothing. The ledger
says which rows a replay is about before the first day is built, so that one that was killed is ended by the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path

from lakehouse.build.plan import make_plan
from lakehouse.build.stale import stale_days
from lakehouse.contracts import Table
from lakehouse.days import newest_day
from lakehouse.delta.failpoints import failpoint
from lakehouse.read.lake import Lake
from lakehouse.records.identity import identified
from lakehouse.records.ledger import (
    DISCARD,
    KEEP,
    REPLAY,
    REPLAYED,
    Chosen,
    LedgerEntry,
    Rules,
    Wanted,
    open_replays,
    write,
)
from lakehouse.records.quarantined import QuarantinedRow, quarantined_rows

PUBLISHED, QUARANTINED, GONE, HELD_BACK = "published", "quarantined", "gone", "held back"


@dataclass(frozen=True)
class ReplayPlan:
    """What a replay is about.

    Attributes:
        chosen: the rows, without those that were discarded.
        build: days to build again.
        same: days whose inputs and code are those the rows were judged by: they would come out the same.
        gone: days whose landed file is gone; their rows stay in quarantine.
        ahead: days that have not come yet, into which a clock that is ahead has dated rows; no run builds them.
        unfinished: earlier replays that never came to their end.
    """

    table: Table
    wanted: Wanted
    chosen: Sequence[QuarantinedRow]
    build: Sequence[date]
    same: Sequence[date]
    gone: Sequence[date]
    ahead: Sequence[date]
    unfinished: Sequence[LedgerEntry]

    @property
    def nothing_to_do(self) -> bool:
        """True where neither a day has to be built nor an earlier replay to be ended."""
        return not self.build and not self.unfinished


def plan_replay(lake: Lake, table: Table, wanted: Wanted, *, force: bool = False) -> ReplayPlan:
    """Which rows and days a replay is about, from logs alone.

    Args:
        lake: where the tables are.
        table: whose quarantine.
        wanted: which rows.
        force: build days again that would come out the same as far as the log can tell.
    """
    root = lake.settings.root
    unfinished = open_replays(root, table.id)
    chosen = [each for each in quarantined_rows(root, table) if each.fits(wanted) and not each.discarded]
    days = sorted({each.day for each in chosen}.union(*(each.chosen for each in unfinished)))
    landed = make_plan(lake, table, days).landed if days and table.landing else {}
    gone = [day for day in days if table.landing and not landed[day]]
    ahead = [day for day in days if day > _newest(lake)]
    there = [day for day in days if day not in gone and day not in ahead]
    build = there if force else stale_days(lake, table, there)
    same = [day for day in there if day not in build]
    return ReplayPlan(table, wanted, chosen, build, same, gone, ahead, unfinished)


def _newest(lake: Lake) -> date:
    """The newest day that a run builds: the one that is on, of which a stream may have set rows aside, unless ended."""
    now = datetime.now(UTC)
    return now.date() if lake.settings.last_day is None else newest_day(lake.settings.last_day, now)


def run_replay(
    lake: Lake,
    plan: ReplayPlan,
    execute: Callable[[Collection[date]], Sequence[str] | None],
    *,
    who: str,
    now: Callable[[], datetime],
) -> list[LedgerEntry]:
    """Build the days of a plan and what depends on them, and write down what became of the rows.

    Args:
        lake: where the tables are; it must not keep snapshots.
        plan: what to do.
        execute: builds these days of the table, then the stale days of what is downstream, and returns the ids of its
            runs; None where something broke or was interrupted, so that the replay stays open.
        who: user of the operating system.
        now: the time, for the ledger.

    Returns:
        The end of this replay and of earlier ones that were still open, oldest first; empty where `execute` broke.
    """
    root, begun = lake.settings.root, list(plan.unfinished)
    if plan.build and plan.chosen:
        known = {(day, row) for each in begun for day, rows in each.chosen.items() for row in chain(*rows.values())}
        if {(each.day, each.row) for each in plan.chosen} - known:  # else these rows were begun before, and killed
            entry = LedgerEntry(plan.table.id, REPLAY, who, now(), by_rules(plan.chosen), plan.wanted)
            # The intent goes into the ledger before anything is built: a kill in the middle leaves a replay that is
            # known to be open.
            begun.append(write(root, entry))
    # Killed from here on, the entry has no end: the next replay of the table, of whatever rows, goes on with it.
    failpoint(plan.table.id, "after-replay-begun")
    runs = execute(plan.build)
    failpoint(plan.table.id, "after-replay-built")
    if runs is None:
        return []
    ended = []
    for entry in begun:
        outcome, still = outcomes(lake, plan.table, entry.chosen)
        failpoint(plan.table.id, "before-replay-end")
        end = replace(entry, action=REPLAYED, who=who, at=now(), outcome=outcome, still=still, runs=tuple(runs))
        ended.append(write(root, end))
        failpoint(plan.table.id, "after-replay-end")
    return ended


def outcomes(lake: Lake, table: Table, chosen: Chosen) -> tuple[dict[str, int], dict[str, int]]:
    """What became of rows: their number by outcome, and by rule those that are still in quarantine.

    Held back are rows whose day failed its audit; gone are those that their day no longer has, because its source
    changed.

    Args:
        lake: where the tables are.
        table: the contract.
        chosen: the rows that were replayed, by day.
    """
    # A number says which row of its day it is: the same key may be in quarantine on another day.
    quarantined = {(each.day, each.row): each.rules for each in quarantined_rows(lake.settings.root, table)}
    snapshot = lake.snapshot(table.id)
    by_day = snapshot.by_day(table.day_column)
    found: Counter[str] = Counter()
    still: Counter[str] = Counter()
    # A day that is stale after the run failed its audit: its rows are held back with it, and not lost.
    not_current = set(stale_days(lake, table, chosen))
    for day, rules in chosen.items():
        rows = list(chain(*rules.values()))
        left = {row for row in rows if (day, row) not in quarantined}
        files = by_day.get(day, []) if left else []
        live = left.intersection(chain.from_iterable(identified(table, snapshot, file)[1] for file in files))
        for row in rows:
            if (day, row) in quarantined:
                still.update(quarantined[day, row])
            missing = HELD_BACK if day in not_current else GONE
            found[QUARANTINED if (day, row) in quarantined else PUBLISHED if row in live else missing] += 1
    return dict(found), dict(still)


def discard(
    root: Path, table: Table, wanted: Wanted, *, who: str, at: datetime, reason: str, undo: bool = False
) -> LedgerEntry | None:
    """Take rows out of every count, or take that back; None where no row is left to decide about.

    Args:
        root: of the lakehouse.
        table: whose quarantine.
        wanted: which rows.
        who: user of the operating system.
        at: now.
        reason: why, for those who read the ledger later.
        undo: let rows that were discarded count again.
    """
    chosen = [each for each in quarantined_rows(root, table) if each.fits(wanted) and each.discarded == undo]
    if not chosen:
        return None
    return write(root, LedgerEntry(table.id, KEEP if undo else DISCARD, who, at, by_rules(chosen), wanted, reason))


def by_rules(chosen: Sequence[QuarantinedRow]) -> dict[date, dict[Rules, list[int]]]:
    """Rows by day and broken rules, as the ledger keeps them."""
    found: dict[date, dict[Rules, list[int]]] = {}
    for each in chosen:
        found.setdefault(each.day, {}).setdefault(each.rules, []).append(each.row)
    return found
