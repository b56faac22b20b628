"""Figures of many days with the band of what was usual on each: as the checks on history judge, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

from lakehouse.checks.anomalies import Band, baselines, usual_count, usual_share, usual_sum
from lakehouse.contracts import Anomalies, Table, Volume
from lakehouse.records.history import DayRecord
from lakehouse.report.figures import Point, Series

Bounds = Volume | Anomalies


def rows_series(table: Table, kept: Mapping[date, DayRecord]) -> Series:
    """Published rows, against what the check `volume` would take for usual."""
    bounds = table.quality.volume or Volume()
    counts = {day: float(record.rows) for day, record in kept.items()}
    told = {day: rows for day, rows in counts.items() if rows > 0}
    return _judged("rows", "rows", table, counts, told, bounds, lambda _, past: usual_count(past, bounds.warn_z))


def null_series(table: Table, kept: Mapping[date, DayRecord], most: int) -> list[Series]:
    """Null rates of the columns that have nulls and values, those that vary most first.

    Args:
        table: the table.
        kept: by day, the figures that its log keeps.
        most: columns at most.
    """
    bounds = table.quality.anomalies or Anomalies()
    full = {day: record for day, record in kept.items() if record.rows}
    by_column: dict[str, dict[date, float]] = {}
    for name in table.columns:
        rates = {day: each.figures.get("nulls", {}).get(name, 0) / each.rows for day, each in full.items()}
        if name not in table.pii and any(rates.values()) and min(rates.values()) < 1:
            by_column[name] = rates

    def usual(day: date, past: Sequence[float]) -> Band:
        return usual_share(past, full[day].rows, bounds.warn_z)

    def varies(name: str) -> float:
        return max(by_column[name].values()) - min(by_column[name].values())

    # What was usual takes long to find out, so it is not for columns that are not shown.
    shown = sorted(by_column, key=varies, reverse=True)[:most]
    return [
        _judged(f"{name} is null", "share", table, by_column[name], by_column[name], bounds, usual) for name in shown
    ]


def business_series(table: Table, kept: Mapping[date, DayRecord]) -> list[Series]:
    """The figures that the contract names, each against its own same weekdays before."""
    bounds = table.quality.anomalies or Anomalies()
    by_name: dict[str, dict[date, float]] = {}
    for day, record in kept.items():
        for name, number in record.business.items():
            by_name.setdefault(name, {})[day] = float(number)
    return [
        _judged(name, "", table, values, values, bounds, lambda _, past: usual_sum(past, bounds.warn_z))
        for name, values in sorted(by_name.items())
    ]


def cost_series(kept: Mapping[date, DayRecord]) -> list[Series]:
    """Seconds and bytes of each day; a build's seconds are shared by the days it published."""
    shared: dict[int, int] = {}
    for record in kept.values():
        shared[record.version] = shared.get(record.version, 0) + 1
    seconds = [
        Point(day, float(record.figures["seconds"]) / shared[record.version])
        for day, record in sorted(kept.items())
        if record.figures.get("seconds") is not None
    ]
    size = [Point(day, float(record.figures.get("bytes", 0))) for day, record in sorted(kept.items())]
    return [each for each in (Series("seconds", "seconds", seconds), Series("bytes", "bytes", size)) if each.points]


def _judged(
    name: str,
    unit: str,
    table: Table,
    values: Mapping[date, float],
    history: Mapping[date, float],
    bounds: Bounds,
    usual: Callable[[date, Sequence[float]], Band],
) -> Series:
    points = []
    for day, past in baselines(values, history, table.quality.known_events, bounds.history):
        band = usual(day, [history[each] for each in past]) if len(past) >= bounds.min_history else None
        points.append(Point(day, values[day], band))
    words = f"usual: the last {bounds.history} same weekdays, up to {bounds.warn_z:g} robust standard deviations"
    return Series(name, unit, points, words)
