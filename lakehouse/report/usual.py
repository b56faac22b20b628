"""Figures of many days with the band of what was usual on each: as the checks on history judge, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import numpy as np

from lakehouse.contracts import Anomalies, Table, Volume
from lakehouse.records.day_record import DayRecord
from lakehouse.report.bands import Numbers, Positions, Usual, bands, usual_counts, usual_shares, usual_sums
from lakehouse.report.figures import Point, Series

Bounds = Volume | Anomalies


def rows_series(table: Table, kept: Mapping[date, DayRecord]) -> Series:
    """Published rows, against what the check `volume` would take for usual."""
    bounds = table.quality.volume or Volume()
    counts = {day: float(record.rows) for day, record in kept.items()}
    told = {day: rows for day, rows in counts.items() if rows > 0}
    return _judged("rows", "rows", table, counts, told, bounds, lambda _, past: usual_counts(past, bounds.warn_z))


def null_series(table: Table, kept: Mapping[date, DayRecord], most: int) -> list[Series]:
    """Null rates of the columns that have nulls and values, those that vary most first.

    Args:
        table: the table.
        kept: by day, the figures that its log keeps.
        most: columns at most.
    """
    bounds = table.quality.anomalies or Anomalies()
    full = {day: (rows, record.figures.get("nulls", {})) for day, record in kept.items() if (rows := record.rows)}
    by_column: dict[str, dict[date, float]] = {}
    counted = {name for _, nulls in full.values() for name in nulls}
    for name in table.columns:
        if name not in counted or name in table.pii:
            continue
        rates = {day: nulls.get(name, 0) / rows for day, (rows, nulls) in full.items()}
        if any(rates.values()) and min(rates.values()) < 1:
            by_column[name] = rates

    sizes = np.array([full[day][0] for day in sorted(full)], dtype=np.float64)

    def usual(days: Positions, past: Numbers) -> Numbers:
        return usual_shares(past, sizes[days], bounds.warn_z)

    def varies(name: str) -> float:
        return max(by_column[name].values()) - min(by_column[name].values())

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
        _judged(name, "", table, values, values, bounds, lambda _, past: usual_sums(past, bounds.warn_z))
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
    usual: Usual,
) -> Series:
    days, sizes = sorted(values), (bounds.min_history, bounds.history)
    found = bands(days, history, table.quality.known_events, sizes, usual)
    points = [Point(day, values[day], band) for day, band in zip(days, found, strict=True)]
    words = f"usual: the last {bounds.history} same weekdays, up to {bounds.warn_z:g} robust standard deviations"
    return Series(name, unit, points, words)
