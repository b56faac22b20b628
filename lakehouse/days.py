"""Days, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta


def days_between(first: date, last: date) -> list[date]:
    """Every day from first to last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def contiguous(days: Iterable[date]) -> list[tuple[date, date]]:
    """Gapless ranges, first and last day included, that together are the days."""
    spans: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if spans and day - spans[-1][1] == timedelta(days=1):
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    return spans
