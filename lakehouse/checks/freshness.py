"""Freshness by the time the data speaks of: is each day complete by the end of its time, and how often was it.

A table that was built a minute ago can still lack yesterday. Here a day is due `freshness.within` after its end. It is
met where its rows were published by then and are as many as its history lets expect. Building an old day again makes no
other day fresh. A table that has rows every so many days alone (`freshness.every`) meets a day by one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import NamedTuple

from lakehouse.checks.anomalies import baselines
from lakehouse.checks.statistics import median
from lakehouse.contracts import Table
from lakehouse.days import days_between, end_of
from lakehouse.records.day_record import DayRecord

BUDGET_DAYS = 30
HISTORY, LEAST_HISTORY = 8, 3  # same weekdays that say what to expect, and the fewest that do
COMPLETE, NOT_COMPLETE = "complete", "not complete"
BEFORE_FIRST_DAY, MESSAGES_WAIT = "before its first day", "open, messages wait"
BY_DAY_BEFORE = "met by rows of days before"
COMPLETE_FROM = 0.5  # of the usual rows: half a day is missing below, and a slow day is not


class DayFreshness(NamedTuple):
    """One day: rows now, rows usual on its weekday (None: too little history), and when it was first complete."""

    day: date
    rows: int
    usual: float | None
    complete_at: datetime | None

    @property
    def completeness(self) -> float | None:
        """Share of the usual rows that is there, at most 1; None without history."""
        return None if not self.usual else min(1.0, self.rows / self.usual)


@dataclass(frozen=True)
class FreshnessState:
    """A table at one moment.

    Attributes:
        due: the newest day whose time is up.
        met: whether that day is complete, or one of those before it within `freshness.every`; or the table's first day
            is a later one, so that none of its days is due yet; or it has no day, and none is expected.
        by_day_before: whether it is one of those before it that is complete, and not that day.
        waits: whether messages of that day, or of one before it, wait for a later batch.
        newest: the newest complete day that is over, and of which no messages wait; None where there is none.
        behind: from the end of the newest complete day to the moment.
        judged: days of the last month whose time is up and that began after the table's first commit.
        missed: those of them that were not complete in time.
    """

    table: str
    within: timedelta
    due: date
    met: bool
    by_day_before: bool
    waits: bool
    newest: date | None
    behind: timedelta | None
    days: Sequence[DayFreshness]
    judged: Sequence[date]
    missed: Sequence[date]
    budget: float

    @property
    def budget_left(self) -> float:
        """Share of the error budget that is left, negative where it is overdrawn; 1 while nothing was judged."""
        allowed = self.budget * len(self.judged)
        return 1.0 if not self.judged else 1.0 - len(self.missed) / allowed if allowed else -float(len(self.missed))

    @property
    def _due_day(self) -> DayFreshness | None:
        return next((each for each in self.days if each.day == self.due), None)

    @property
    def standing(self) -> str:
        """How the day that is due stands."""
        if not self.met:
            return MESSAGES_WAIT if self.waits else NOT_COMPLETE
        day = self._due_day
        if day is not None and day.complete_at is not None:
            return COMPLETE
        return BY_DAY_BEFORE if self.by_day_before else BEFORE_FIRST_DAY

    def text(self) -> str:
        """In words."""
        last = f"complete up to {self.newest}" if self.newest else "no day is complete"
        day = None if self.met else self._due_day
        share = f" ({day.completeness:.0%} of the usual rows)" if day and day.completeness is not None else ""
        spent = f"{len(self.missed)} of {len(self.judged)} days missed in the last {BUDGET_DAYS}"
        return f"{last}; {self.due}, due {_hours(self.within)} after its end, is {self.standing}{share}; {spent}"


def judge(
    table: Table,
    kept: Sequence[DayRecord],
    now: datetime,
    last_day: date | None = None,
    back: int = BUDGET_DAYS,
    first_day: date | None = None,
    waits_from: date | None = None,
    *,
    expected: bool = True,
) -> FreshnessState:
    """The freshness of a table, from the figures that commits keep.

    Args:
        table: with its `freshness` and `quality.known_events`.
        kept: its records, oldest commit first.
        now: the moment, with a time zone.
        last_day: the last day of a lake whose data has ended, which is judged as of the moment that day was due.
        back: days before it that are judged.
        first_day: of the lake; None: not known.
        waits_from: the first day of which messages wait for a later batch; None: none wait.
        expected: whether rows of a table that has none yet are; of one that has some, they are.
    """
    if last_day is not None:
        now = min(now, end_of(last_day) + table.freshness.within)
    due, every = _due(now, table.freshness.within), table.freshness.every.days
    by_day: dict[date, list[DayRecord]] = {}
    for each in kept:
        by_day.setdefault(each.day, []).append(each)
    first = min(due - timedelta(days=back), now.date() - timedelta(days=back + 6))
    seen = days_between(first - timedelta(days=every - 1), now.date())
    state = {each.day: each for each in _days(table, by_day, seen)}
    met = {day: _met_at(state, day, every) for day in days_between(first, now.date())}
    newest = _newest(by_day, state, min(now.date(), waits_from or date.max))
    # A lake, or a stream, that was begun an hour ago owes nobody the days before it; one that nobody begins owes none.
    owed_from = max(first_day or date.min, min(by_day, default=date.min if expected else date.max))
    waits = due >= (waits_from or date.max)
    begun = kept[0].at.date() if kept else now.date()
    judged = [due - timedelta(days=n) for n in range(back) if due - timedelta(days=n) >= begun]
    return FreshnessState(
        table=table.id,
        within=table.freshness.within,
        due=due,
        met=due < owed_from or (met[due] is not None and not waits),
        by_day_before=met[due] is not None and state[due].complete_at is None,
        waits=waits,
        newest=newest,
        behind=None if newest is None else now - end_of(newest),
        days=[state[day] for day in met],
        judged=sorted(judged),
        missed=sorted(day for day in judged if not _in_time(day, met[day], table.freshness.within)),
        budget=table.freshness.budget,
    )


def of_the_month(state: FreshnessState) -> FreshnessState:
    """What `judge` says of the usual days back, from a state that was judged over more."""
    first = state.due - timedelta(days=BUDGET_DAYS - 1)
    judged, missed = ([day for day in days if day >= first] for days in (state.judged, state.missed))
    return replace(state, judged=judged, missed=missed)


def _days(table: Table, by_day: Mapping[date, list[DayRecord]], span: Sequence[date]) -> list[DayFreshness]:
    """Each day of a span beside the rows that its weekday usually has."""
    rows, known = {day: each[-1].rows for day, each in by_day.items()}, table.quality.known_events
    past = baselines(span, [day for day, number in rows.items() if number], known, HISTORY)
    return [_day(day, by_day.get(day, []), [rows[each] for each in usual], day in known) for day, usual in past]


def _newest(by_day: Mapping[date, list[DayRecord]], state: Mapping[date, DayFreshness], end: date) -> date | None:
    """The newest complete day before one; where none of the days that are judged is, the newest that has rows at all.

    A day that is not over is not complete, however much of it a stream has brought.
    """
    over = [day for day in by_day if day < end]
    complete = [day for day in over if day in state and state[day].complete_at]
    return max(complete, default=None) or max((day for day in over if by_day[day][-1].rows), default=None)


def _day(day: date, versions: Sequence[DayRecord], history: Sequence[int], known: bool) -> DayFreshness:
    usual = median(history) if len(history) >= LEAST_HISTORY else None
    now = versions[-1].rows if versions else 0
    # Without history, or on a day of a known event, a published day counts as complete.
    enough = 0.0 if usual is None or known else COMPLETE_FROM * usual
    first = next((each.at for each in versions if each.rows >= enough), None)
    return DayFreshness(day, now, usual, first if versions and now >= enough else None)


def _met_at(state: Mapping[date, DayFreshness], day: date, every: int) -> datetime | None:
    """When a day was complete, or one of those before it, of which it needs one with rows; None: it is not yet."""
    if every == 1:
        return state[day].complete_at
    near = [state[day - timedelta(days=n)] for n in range(every)]
    return min((each.complete_at for each in near if each.complete_at is not None and each.rows), default=None)


def _in_time(day: date, met_at: datetime | None, within: timedelta) -> bool:
    return met_at is not None and met_at <= end_of(day) + within


def _due(now: datetime, within: timedelta) -> date:
    return (now - within).date() - timedelta(days=1)


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):g} h"
