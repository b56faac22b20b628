"""Days of a sample."""

from __future__ import annotations

from datetime import date, timedelta

from lakehouse.errors import GeneratorError


def sample_days(start: date, days: int) -> list[date]:
    """The days of a sample.

    Raises:
        GeneratorError: `days` is less than 1.
    """
    if days < 1:
        raise GeneratorError(f"sample from {start}: expected 1 day or more, got {days}")
    return [start + timedelta(days=number) for number in range(days)]
