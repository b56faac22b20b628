"""Statistics that checks share: lateness, its percentiles, and shares that are too large to be chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date


def lateness(arrival: date, event_days: Mapping[date, int]) -> Counter[int]:
    """Rows by days between their day and their arrival; rows dated after their arrival have negative days."""
    counted: Counter[int] = Counter()
    for day, rows in event_days.items():
        counted[(arrival - day).days] += rows
    return counted


def percentile(counted: Mapping[int, int], share: float) -> int:
    """The smallest lateness that at least this share of the rows does not exceed (nearest rank)."""
    # Nearest rank: always a lateness that occurred, never one between two.
    rank = math.ceil(share * sum(counted.values()))
    seen = 0
    # From the least late on, until so many rows are passed.
    for days in sorted(counted):
        seen += counted[days]
        if seen >= rank:
            return days
    return 0


def exceeds(count: int, of: int, bound: float) -> bool:
    """Whether a count is above its bound by more than chance: three standard deviations of a binomial.

    One guest on a day of one row is a null rate of 100 % and says nothing; a bound of 0 has no tolerance.

    Args:
        count: of rows, say, that are null.
        of: all of them.
        bound: the share that is allowed, 0 to 1.
    """
    # Expected number plus three standard deviations, sqrt(n p (1 - p)): about one day in a thousand is above by chance.
    return count > bound * of + 3 * math.sqrt(of * bound * (1 - bound))


def median(values: Sequence[float]) -> float:
    """As `statistics.median`, which takes five times as long of eight values; a report asks for it 100,000 times."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
