"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, date, datetime

from lakehouse.report.buckets import Step
from lakehouse.report.figures import Point, Series
from lakehouse.report.plots import is_odd

_THOUSAND = 1000.0


def number(value: float, unit: str) -> str:
    """A figure in its unit: whole rows, per cent, seconds, bytes, or a figure of the business with its two digits."""
    if unit == "share":
        return f"{value:.1%}"
    if unit == "seconds":
        return f"{value:,.2f} s"
    if unit == "bytes":
        return size(value)
    return f"{value:,.0f}" if unit == "rows" or value == int(value) else f"{value:,.2f}"


def size(value: float) -> str:
    """Bytes with the unit that suits."""
    for name in ("B", "kB", "MB"):
        if value < _THOUSAND:
            return f"{value:,.0f} {name}" if name == "B" else f"{value:,.1f} {name}"
        value /= _THOUSAND
    return f"{value:,.1f} GB"


def title(series: Series) -> str:
    """The heading of a plot."""
    named = {"seconds": "Seconds to build", "bytes": "Bytes", "rows": "Rows"}
    return named.get(series.name, series.name)


def usual(point: Point, unit: str) -> str:
    """What was usual of a figure; empty where the history is too short."""
    return f"{number(point.usual.low, unit)} to {number(point.usual.high, unit)}" if point.usual else ""


def summary(series: Series, points: list[Point], step: Step) -> str:
    """A plot in words, for those who cannot see it.

    Args:
        series: what is drawn.
        points: as they are drawn, put together by step.
        step: a day, a week or a month.
    """
    newest = points[-1]
    each = "" if step is Step.DAY else f", mean a day by {step.value}"
    told = f"{title(series)}{each}, from {points[0].day} to {newest.day}. Newest: {number(newest.value, series.unit)}"
    told += f", usual {usual(newest, series.unit)}" if newest.usual else ""
    low, high = (pick(points, key=lambda point: point.value) for pick in (min, max))
    told += f". Lowest: {number(low.value, series.unit)} on {low.day}. "
    told += f"Highest: {number(high.value, series.unit)} on {high.day}."
    odd = [point for point in points if is_odd(point)]
    if series.judged:
        told += f" Outside of what was usual: {len(odd)} of {len(points)}."
    return told


def moment(at: datetime) -> str:
    """A point in time to the minute, UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def span(days: list[date]) -> str:
    """Days in short: the newest three, and how many before."""
    shown = ", ".join(str(day) for day in days[-3:])
    return f"{shown} and {len(days) - 3} before" if len(days) > 3 else shown  # noqa: PLR2004 - as it says
