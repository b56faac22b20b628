"""What the report shows, as plain figures: rows, shares, sums and states by data day, never a value of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import NamedTuple

from lakehouse.checks.anomalies import Band


class State(Enum):
    """What there is to say about one day of a table, worst first; the value is the letter in a cell."""

    FAILED = "F"
    ENDED = "E"
    WAITING = "W"
    NOT_BUILT = "N"
    STALE = "S"
    LATE = "L"
    OPEN = "+"
    EMPTY = "0"
    PUBLISHED = "·"


MEANING: Mapping[State, str] = {
    State.FAILED: "the newest run did not publish it",
    State.ENDED: "somebody ended its run; it waits for a new input, or until somebody launches it",
    State.WAITING: "holds the last good data of what it reads, or none: that failed or is not built yet",
    State.NOT_BUILT: "has input and was never built",
    State.STALE: "its inputs or its code have changed since it was published",
    State.LATE: "was not complete in time",
    State.OPEN: "not over: it is built again as its rows come",
    State.EMPTY: "published without rows",
    State.PUBLISHED: "with rows, from its newest input",
}


class Verdict(Enum):
    """How a check ended on one day, worst first; the value is the letter in a cell."""

    FAILED = "F"
    WARNED = "!"
    PASSED = "·"


VERDICTS: Mapping[Verdict, str] = {
    Verdict.FAILED: "failed: the day is not published, or was published before and not since",
    Verdict.WARNED: "warned: published, and unusual",
    Verdict.PASSED: "passed",
}


class Cell(NamedTuple):
    """A day's state or verdict, and why in words where there is more to say."""

    sign: State | Verdict
    why: str = ""


class Point(NamedTuple):
    """One figure of one data day, and what was usual then; None: too little history to say."""

    day: date
    value: float
    usual: Band | None = None


@dataclass(frozen=True)
class Series:
    """One figure over data days, in order.

    Attributes:
        name: as the contract or the record calls it.
        unit: rows, share, seconds, bytes, or empty for a figure of the business.
        points: by day; a day without the figure has none.
        judged: by what `usual` is judged, in words; empty where there is no band.
    """

    name: str
    unit: str
    points: Sequence[Point]
    judged: str = ""


@dataclass(frozen=True)
class Waiting:
    """Rows in quarantine that broke a rule: those on some days, and since when the oldest."""

    rule: str
    meaning: str
    rows: int
    since: datetime
    by_day: Mapping[date, int]


@dataclass(frozen=True)
class Punctuality:
    """Freshness by the time the data speaks of; `budget_left` is a share of the month's error budget."""

    met: bool
    due: date
    standing: str
    complete_up_to: date | None
    missed: Sequence[date]
    judged: int
    budget_left: float
    within_hours: float


@dataclass(frozen=True)
class ColumnOrigin:
    """A column of a table and the columns it is computed from, as `(table, column)`."""

    name: str
    kind: str
    meaning: str
    personal: bool
    sources: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TableReport:
    """One table.

    Attributes:
        days: state of each day that is known.
        rows, bytes: of all published days.
        figures: rows, null rates and figures of the business, by data day.
        cost: seconds and bytes, by data day.
        checks: by name of the check, its meaning and its verdicts by day.
        quarantine: by rule, most rows first; discarded rows are in `discarded` alone.
        reads: tables or landed sources that it is computed from.
    """

    name: str
    owner: str
    about: str
    grain: str
    days: Mapping[date, Cell]
    rows: int
    bytes: int
    published_at: datetime | None
    figures: Sequence[Series]
    cost: Sequence[Series]
    checks: Mapping[str, tuple[str, Mapping[date, Cell]]]
    quarantine: Sequence[Waiting]
    quarantined: int
    discarded: int
    fresh: Punctuality
    columns: Sequence[ColumnOrigin]
    reads: Sequence[str] = ()

    def in_state(self, state: State) -> list[date]:
        """The days in a state, in order."""
        return sorted(day for day, cell in self.days.items() if cell.sign is state)


@dataclass(frozen=True)
class LakeReport:
    """All chosen tables at a moment, upstream tables first; `first` and `last` are None where there is no day."""

    at: datetime
    first: date | None
    last: date | None
    tables: Sequence[TableReport] = field(default_factory=tuple)
