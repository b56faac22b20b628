"""What a backfill will take, from what earlier builds of the same tables took."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.records.day_record import DayRecord

NEWEST = 50  # builds looked at: code and data of long ago say little


@dataclass(frozen=True)
class Estimate:
    """Seconds and published rows that some days of a table will take; None where it was never built."""

    seconds: float | None
    rows: int | None


def estimate(kept: Sequence[DayRecord], days: int) -> Estimate:
    """The cost of building that many days of a table in one run.

    A build costs something however small it is, and something a day: fitted by least squares where earlier builds
    differ in their number of days, else taken in proportion.

    Args:
        kept: the table's records, oldest first.
        days: how many days will be built.
    """
    rows = [each.rows for each in kept if each.rows]
    # The median: one first load of years must not make every day look like a year.
    usual = round(statistics.median(rows) * days) if rows else None
    points = _newest_builds(kept)
    return Estimate(_seconds(points, days) if points else None, usual)


def _newest_builds(kept: Sequence[DayRecord]) -> list[tuple[int, float]]:
    """Days and seconds of the newest builds: each of a build's days has a record with the seconds of the whole."""
    builds: dict[int, float] = {}
    sizes: Counter[int] = Counter()
    for each in kept:
        if "seconds" in each.figures and each.operation == "publish":
            builds[each.version] = float(each.figures["seconds"])
            sizes[each.version] += 1
    return [(sizes[version], builds[version]) for version in sorted(builds)[-NEWEST:]]


def _seconds(points: Sequence[tuple[int, float]], days: int) -> float:
    if len({size for size, _ in points}) > 1:
        slope, base = statistics.linear_regression([n for n, _ in points], [s for _, s in points])
        # A line that falls, or that makes no build cost less than nothing, is fitted to noise.
        if slope > 0 and base > 0:
            return base + slope * days
    # Of builds of one size the smallest part is unknown: in proportion, but never less than the quickest build.
    share = statistics.median(seconds / size for size, seconds in points)
    return max(share * days, min(seconds for _, seconds in points) if days else 0.0)
