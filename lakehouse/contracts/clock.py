"""An event time, which somebody else's clock gave, bounded against the arrival of its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse.contracts.mistakes import check, is_days, is_share, is_time, unless
from lakehouse.contracts.rules import Rule
from lakehouse.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column

CLOCKS_CHECK = "clocks"
UNREAD = "_raw"  # technical column: the text of a time that is none but shows what was meant
LONG_YEAR = r"^[+-]?\d{5,}-"


@dataclass(frozen=True)
class Clock:
    """When the events of a table happened, by the clocks of those who produced them.

    A row of a landed file has arrived at the end of its arrival day: no more is known. Of a message more is, which
    `arrived_at` names. The transform keeps `_arrival_date`, and in `_raw` what `unread_time` says of the time's text.

    Attributes:
        column: the event time.
        ahead: how far after its arrival an event may be: clocks differ.
        back: how far before its arrival, in whole days; what is older comes from a dead clock. It should reach as far
            as the days that bronze accepts (`with_event_date`).
        max_wrong: share of a producer's rows that may have an impossible time before the check `clocks` names it.
        arrived_at: technical column that the transform keeps, with the moment of the arrival where one is known, as
            `_arrived_at` of a message; null where it is not. Empty: it is not known of any row.
    """

    column: str
    ahead: timedelta = timedelta(minutes=15)
    back: timedelta = timedelta(days=400)
    max_wrong: float = 0.001
    arrived_at: str = ""

    def __post_init__(self) -> None:
        check(
            unless(is_time(self.ahead), "clock.ahead", "a time that is not negative", str(self.ahead),
                   "Write it as timedelta(minutes=15)."),
            unless(is_days(self.back, 1), "clock.back", "whole days, 1 or more", str(self.back),
                   "Write it as timedelta(days=400)."),
            is_share("clock.max_wrong", self.max_wrong),
            unless(not self.arrived_at or self.arrived_at.startswith("_"), "clock.arrived_at",
                   "a technical column, whose name begins with _", self.arrived_at, 'Write it as "_arrived_at".'),
        )  # fmt: skip

    @property
    def future(self) -> str:
        """Name of the rule against times after the arrival."""
        return f"{self.column}_not_in_future"

    @property
    def old(self) -> str:
        """Name of the rule against times long before the arrival."""
        return f"{self.column}_not_too_old"

    @property
    def number(self) -> str:
        """Name of the rule against numbers in place of a time."""
        return f"{self.column}_not_a_number"

    @property
    def unit(self) -> str:
        """Name of the rule against seconds that were read as milliseconds, and the reverse."""
        return f"{self.column}_in_right_unit"

    @property
    def beside(self) -> tuple[str, ...]:
        """Technical columns with the arrival, which the transform has to keep."""
        return ("_arrival_date", self.arrived_at) if self.arrived_at else ("_arrival_date",)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The row rules. A time that is missing is no business of theirs: `<column>_present` says so."""
        c, minutes, days = self.column, self.ahead / timedelta(minutes=1), self.back.days
        end = "the end of its arrival day, UTC"
        arrival = f"its arrival (of a landed row: {end})" if self.arrived_at else end
        future = f"{c} is at most {minutes:g} minutes after {arrival}; else its producer's clock is ahead: have it set"
        old = f"{c} is at most {days} days older than its arrival; epoch zero and dead clocks are no event times"
        number = f"{c} is ISO 8601 text; whether a number counts seconds or milliseconds is not guessed: have text sent"
        unit = (
            f"{c} is no mix-up of seconds and milliseconds, which gives January 1970 or years beyond 9999: have its "
            "producer convert in the right unit"
        )
        bounded = frozenset({c, *self.beside})
        return (
            Rule(self.future, future, _proven(self._not_in_future), bounded),
            Rule(self.old, old, _proven(self._not_too_old), bounded),
            Rule(self.number, number, _proven(self._not_a_number), frozenset({UNREAD})),
            Rule(self.unit, unit, _proven(self._in_right_unit), bounded | {UNREAD}),
        )

    def _not_in_future(self) -> Column:
        return F.col(self.column).isNull() | (F.col(self.column) <= self._latest())

    def _not_too_old(self) -> Column:
        return F.col(self.column).isNull() | (F.col(self.column) >= self._earliest())

    def _not_a_number(self) -> Column:
        return F.col(UNREAD).isNull() | F.col(UNREAD).rlike(LONG_YEAR)

    def _in_right_unit(self) -> Column:
        """Read as seconds, the time's milliseconds (or microseconds) since 1970 are no plausible time."""
        moment, first, last = F.col(self.column), F.unix_seconds(self._earliest()), F.unix_seconds(self._latest())
        mistaken = F.unix_millis(moment).between(first, last) | F.unix_micros(moment).between(first, last)
        read = moment.isNull() | (moment >= self._earliest()) | ~mistaken
        return read & (F.col(UNREAD).isNull() | ~F.col(UNREAD).rlike(LONG_YEAR))

    def _latest(self) -> Column:
        seconds = int(self.ahead.total_seconds())
        end = F.date_add("_arrival_date", 1).cast("timestamp")
        arrived = F.coalesce(F.col(self.arrived_at), end) if self.arrived_at else end
        return arrived + F.expr(f"INTERVAL {seconds} SECONDS")

    def _earliest(self) -> Column:
        return F.date_sub("_arrival_date", self.back.days).cast("timestamp")


def _proven(holds: Callable[[], Column]) -> Callable[[], Column]:
    return lambda: F.coalesce(holds(), F.lit(False))
