"""What a backfill will take, from what earlier builds of the same tables took."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.records.history import DayRecord

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
    builds: dict[int, float] = {}
    sizes: Counter[int] = Counter()
    for each in kept:
        if "seconds" in each.figures and each.operation == "publish":
            builds[each.version] = float(each.figures["seconds"])
            sizes[each.version] += 1
    newest = sorted(builds)[-NEWEST:]
    rows = [each.rows for each in kept if each.rows]
    usual = round(statistics.median(rows) * days) if rows else None
    if not newest:
        return Estimate(None, usual)
    points = [(sizes[version], builds[version]) for version in newest]
    if len({size for size, _ in points}) > 1:
        slope, base = statistics.linear_regression([n for n, _ in points], [s for _, s in points])
        if slope > 0 and base > 0:
            return Estimate(base + slope * days, usual)
    # Of builds of one size the smallest part is unknown: in proportion, but never less than the quickest build.
    share = statistics.median(seconds / size for size, seconds in points)
    return Estimate(max(share * days, min(seconds for _, seconds in points) if days else 0.0), usual)
