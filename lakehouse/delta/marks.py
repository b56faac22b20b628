"""Marks in a table's log: application transactions that say what a published day was made from."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

DAY_PREFIX = "day/"


def day_transaction(day: date) -> str:
    """Application id under which a table's log keeps the fingerprint of a published day."""
    return f"{DAY_PREFIX}{day.isoformat()}"


def days_of_transactions(names: Iterable[str]) -> set[date]:
    """The days among application ids."""
    return {date.fromisoformat(name.removeprefix(DAY_PREFIX)) for name in names if name.startswith(DAY_PREFIX)}
