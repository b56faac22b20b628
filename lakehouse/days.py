"""Days, one after the other, and moments as numbers and texts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

# Of a lake's partitions. Before, Dagster writes a year without its zeros, and reads no day in that; after, no day has
# another one after it.
EARLIEST, LATEST = date(1000, 1, 1), date(9998, 12, 31)
_FIRST, _LAST = date.min.toordinal(), date.max.toordinal()  # of the calendar
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD = 60.0  # seconds that a look may take, in which something new is a little ahead of it


def days_between(first: date, last: date) -> list[date]:
    """Every day from first to last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def is_between(day: date, first: date | None, last: date | None) -> bool:
    """Whether a day is from first to last, both included; None: without that bound.

    Args:
        day: the day.
        first: the first that is meant; None: from any day on.
        last: the last that is meant, included; None: to any day.
    """
    return (first is None or first <= day) and (last is None or day <= last)


def days_around(day: date, before: int, after: int) -> list[date]:
    """The days from so many before a day to so many after it, itself included.

    Fewer at an end of the calendar: a file may be called 9999-12-31, and then no day is after its own.

    Args:
        day: any day.
        before: how many before it.
        after: how many after it.
    """
    return days_between(shifted(day, -before), shifted(day, after))


def shifted(day: date, days: int) -> date:
    """The day that is so many days later, or earlier; where the calendar ends before it, its last or first day."""
    return date.fromordinal(min(max(day.toordinal() + days, _FIRST), _LAST))


def start_of(day: date) -> datetime:
    """The moment at which a day begins, in UTC."""
    return datetime.combine(day, time(), UTC)


def end_of(day: date) -> datetime:
    """The moment at which a day is over, in UTC; of the calendar's last day its beginning, for no day is after it."""
    return start_of(shifted(day, 1))


def newest_day(last_day: date | None, now: datetime) -> date:
    """The newest day that has a partition: the lake's last, or of a lake that goes on, the last that is over in UTC."""
    return last_day or now.date() - timedelta(days=1)


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970 at a moment; without a time zone it is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def iso(micros: int) -> str:
    """A moment in microseconds since 1970, as rows have it: ISO 8601, UTC, six digits."""
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def contiguous(days: Iterable[date]) -> list[tuple[date, date]]:
    """Gapless ranges, first and last day included, that together are the days."""
    spans: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if spans and day - spans[-1][1] == timedelta(days=1):
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    return spans


def is_younger(moment: float, now: float, age: float) -> bool:
    """Whether something is younger than an age, by the time it carries; a time far ahead of the clock says nothing.

    Args:
        moment: its time, in seconds since 1970, by a clock that may have been ahead.
        now: when it is looked at.
        age: in seconds.
    """
    return -_AHEAD < now - moment < age
