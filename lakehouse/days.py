"""Days, one after the other."""

from __future__ import annotations

from datetime import date, timedelta


def days_between(first: date, last: date) -> list[date]:
    """Every day from first to last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]
